package config

// This file reads and checks what users may do.

import (
	"crypto/sha256"
	"slices"
	"strings"

	"ringside/proxy/table"
)

// User says what a user may do, or the owner of a certificate.
type User struct {
	Name   string   // the user of an auth_file, or cert: and a pattern of names in certificates
	Routes []string // routes whose keys it may use, by their prefix or match; nil: all
	May    []string // "read", "write" and "admin"
}

func (u User) called() (kind, name, full string) { return "user", u.Name, u.Name }

func usersValue() value[[]User] {
	one := group(User{},
		set("routes", "routes with keys that the user may use, by their prefix or match, or * for the route of all other keys; all routes unless set",
			listOf(visible("the prefix or match of a route", 250), 1), func(u *User) *[]string { return &u.Routes }),
		must(set("may", "read and write are for keys; admin is for stats, flush_all, cache_memlimit and the admin interface",
			listOf(words("read", "write", "admin"), 1), func(u *User) *[]string { return &u.May })),
	)
	return elements(one, pairsOf("user, or cert:NAME, to what it may do", one.schema, func(d *document, p pair, path string, u *User) {
		u.Name = p.key.text
		if u.Name == "" || len(u.Name) > 250 || !printable(u.Name) || strings.TrimPrefix(u.Name, "cert:") == "" {
			d.failAt(p.key, "%s: %s is not a user: write a name of an auth_file, or cert: and a name in a certificate, such as cert:spiffe://prod/app-*", path, quote(u.Name))
		}
		one.read(d, p.value, path+"."+u.Name, u)
	}))
}

// checkUsers checks that users names routes and users that exist, and that it limits all clients.
func (d *document) checkUsers(f *File) {
	if f.Users == nil {
		return
	}
	var names []string
	known := map[string]bool{}
	for r := range f.routes() {
		if name := table.RouteName(r.Prefix, r.Match); !known[name] {
			names, known[name] = append(names, name), true
		}
	}
	certificates := f.Admin.TLS.ClientCA != ""
	logins := []*table.Users{f.Admin.Users}
	for i := range f.Listen {
		l := &f.Listen[i]
		logins = append(logins, l.Users)
		certificates = certificates || l.TLS.ClientCA != ""
		if l.AuthFile == "" && l.TLS.ClientCA == "" {
			d.warn(d.place(&l.Address, l), "users does not limit the clients of %s, because it asks for neither a login (auth_file) nor a certificate (tls.client_ca)", l.Address.text())
		}
	}
	for i := range f.Users {
		u := &f.Users[i]
		for j, name := range u.Routes {
			if !known[name] {
				d.failAt(d.place(&u.Routes[j], u), "users.%s.routes: no route has the prefix or match %s; there are %s", u.Name, quote(name), list(names))
			}
		}
		_, certificate := (&table.Permission{Name: u.Name}).Certificate()
		switch {
		case certificate && !certificates:
			d.warn(d.place(u), "users.%s has no effect: no listener has tls.client_ca", u.Name)
		case !certificate && d.others && !slices.ContainsFunc(logins, func(k *table.Users) bool { return k != nil && k.Has(sha256.Sum256([]byte(u.Name))) }):
			d.warn(d.place(u), "users.%s has no effect: no auth_file has that user", u.Name)
		}
	}
}

// Permissions returns what users may do, or nil if the file does not limit them.
func (f *File) Permissions() *table.Permissions {
	if f.Users == nil {
		return nil
	}
	var all []table.Permission
	for _, u := range f.Users {
		may := func(what string) bool { return slices.Contains(u.May, what) }
		all = append(all, table.Permission{Name: u.Name, Routes: u.Routes, Read: may("read"), Write: may("write"), Admin: may("admin")})
	}
	return table.NewPermissions(all)
}
