package config

// This file reads and checks the passwords that a configuration file names.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"ringside/proxy/table"
)

// PoolAuth holds the settings of the login to the servers of a pool. The zero PoolAuth is no login.
type PoolAuth struct {
	User         string
	PasswordFile string // path of the file with the password
}

// mostLogin is the largest length of user and password together. memcached compares no more.
const mostLogin = 254

func poolAuthValue() value[PoolAuth] {
	type t = PoolAuth
	long := group(t{},
		must(set("user", "name of the user, as before the : in the file of memcached's -Y", visible("a user", mostLogin), func(t *t) *string { return &t.User })),
		must(set("password_file", "file with the password of the user, one line", visible("a path", 4096), func(t *t) *string { return &t.PasswordFile })),
	)
	return either(wordOr("a mapping of user and password_file", option[t]{"off", t{}}), fresh(t{}, long))
}

// checkPoolAuth checks the login to the servers of a pool, and reads the password. Pools that inherit the
// same settings share the result, and their mistakes are reported once.
func (d *document) checkPoolAuth(p *Pool) {
	a := &p.Auth
	if a.User == "" || a.PasswordFile == "" { // no login, or an error for what is missing is already recorded
		return
	}
	made, ok := d.logins[*a]
	if !ok {
		made = d.readLogin(p)
		d.logins[*a] = made
	}
	p.Login = made
	if p.TLS.On {
		return
	}
	for i := range p.Servers {
		if s := &p.Servers[i]; !s.Address.Local() {
			d.warn(cmp.Or(d.said(&p.Auth), d.place(p)), "pools.%s.auth: the password crosses the network unencrypted, for example to %s: use tls, if the servers can", p.Name, s.Address.text())
			return
		}
	}
}

func (d *document) readLogin(p *Pool) table.Login {
	a := &p.Auth
	l := table.Login{User: a.User}
	if strings.Contains(l.User, ":") {
		d.failAt(cmp.Or(d.said(&a.User), d.place(p)), "auth.user: a user of memcached has no colon, not %s", quote(l.User))
		return l
	}
	at := cmp.Or(d.said(&a.PasswordFile), d.place(p))
	if !d.others {
		return l
	}
	text, ok := d.readNamed(at, "auth.password_file", a.PasswordFile, "the password")
	if !ok {
		return l
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	switch {
	case len(text) == 0:
		d.failAt(at, "auth.password_file: %s is empty, and must have the password", a.PasswordFile)
	case bytes.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		d.failAt(at, "auth.password_file: the password in %s has a space, a control character or a second line, which memcached's text authentication can't transport", a.PasswordFile)
	case len(l.User)+len(text) > mostLogin:
		d.failAt(at, "auth.password_file: user and password have %d bytes, and memcached compares at most %d", len(l.User)+len(text), mostLogin)
	default:
		l.Password = string(text)
	}
	return l
}

// largestNamed is the largest size in bytes of a file with certificates, a key or passwords. The CAs of a
// whole system need less.
const largestNamed = 1 << 20

// readNamed reads the file at path, which the setting `what` names at the position at. It records an
// error if that is not possible, or if every user of the machine may change the file. If secret is not
// empty, it describes the content, and readNamed warns if every user of the machine can read it.
func (d *document) readNamed(at *node, what, path, secret string) (text []byte, ok bool) {
	d.from.reads(path)
	text, info, err := readRegular(path, largestNamed+1)
	switch {
	case errors.Is(err, errNotRegular), err == nil && len(text) > largestNamed:
		err = fmt.Errorf("%s must be a file of %d bytes at most", path, largestNamed)
	case err == nil && info.Mode().Perm()&0o002 != 0:
		err = fmt.Errorf("every user of this machine may change %s: chmod o-w", path)
	}
	if err != nil {
		d.failAt(at, "%s: %v", what, err)
		return nil, false
	}
	if secret != "" && info.Mode().Perm()&0o004 != 0 {
		d.warn(at, "every user of this machine can read %s in %s: chmod o-r", secret, path)
	}
	return text, true
}

// readUsers reads the auth_file at path, which is named at the position at. It returns nil after an
// error.
func (d *document) readUsers(at *node, path string) *table.Users {
	text, ok := d.readNamed(at, "auth_file", path, "the passwords")
	if !ok {
		return nil
	}
	users, err := table.ParseUsers(text)
	if err != nil {
		d.failAt(at, "auth_file: %s: %v", path, err)
	}
	return users
}
