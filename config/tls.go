package config

// This file reads and checks the certificates, keys and CAs that a configuration file names.

import (
	"cmp"
	"fmt"
	"time"

	"ringside/proxy/secure"
	"ringside/proxy/table"
)

// ListenerTLS holds the TLS settings of a listener.
type ListenerTLS struct {
	On        bool
	Cert, Key string             // paths of the certificate with its chain, and of its key
	ClientCA  string             // path of the CAs of clients' certificates; empty: clients need no certificate
	Handshake time.Duration      // longest duration of a handshake
	Material  *table.ListenerTLS // what the files contain; nil: they were not read
}

var usualListenerTLS = ListenerTLS{On: true, Handshake: 10 * time.Second}

func listenerTLSValue() value[ListenerTLS] {
	type t = ListenerTLS
	return fresh(usualListenerTLS, group(usualListenerTLS, append(certificateKeys(),
		set("handshake", "disconnect a client if its handshake takes longer", duration(100*time.Millisecond, 5*time.Minute), func(t *t) *time.Duration { return &t.Handshake }),
	)...))
}

// adminTLSValue describes the TLS of the admin interface. net/http limits the duration of handshakes.
func adminTLSValue() value[ListenerTLS] {
	return fresh(usualListenerTLS, group(usualListenerTLS, certificateKeys()...))
}

func certificateKeys() []key[ListenerTLS] {
	type t = ListenerTLS
	return []key[ListenerTLS]{
		must(set("cert", "file with the certificate of the listener in PEM, followed by the CAs between it and the root", visible("a path", 4096), func(t *t) *string { return &t.Cert })),
		must(set("key", "file with the key of the certificate in PEM, without a password", visible("a path", 4096), func(t *t) *string { return &t.Key })),
		set("client_ca", "file with the CAs of clients; each client then needs a certificate of one of them", visible("a path", 4096), func(t *t) *string { return &t.ClientCA }),
	}
}

// PoolTLS holds the TLS settings for the servers of a pool.
type PoolTLS struct {
	On        bool
	CA        string // path of the CAs of the servers' certificates, or usualCA
	Cert, Key string // paths of the certificate that Ringside shows, and of its key; empty: none
	Name      string // name in the certificates of the servers, or usualName: the host of the address
	Verify    table.Verify
}

const (
	usualCA   = "system"
	usualName = "auto"
)

var usualPoolTLS = PoolTLS{On: true, CA: usualCA, Name: usualName}

func poolTLSValue() value[PoolTLS] {
	type t = PoolTLS
	long := group(usualPoolTLS,
		set("ca", "file with the CAs of the servers in PEM, or system: those of this machine", visible("a path", 4096), func(t *t) *string { return &t.CA }),
		set("cert", "file with the certificate that Ringside shows to servers, followed by the CAs between it and the root; needed if servers demand one", visible("a path", 4096), func(t *t) *string { return &t.Cert }),
		set("key", "file with the key of cert in PEM, without a password", visible("a path", 4096), func(t *t) *string { return &t.Key }),
		set("name", "name that the certificate of each server must have, or auto: the host of its address", visible("a host name", 253), func(t *t) *string { return &t.Name }),
		set("verify", "what is checked of the certificates of servers. full: CA and name. ca: only the CA. off: nothing, so any host can pretend to be a server",
			named(table.Verify.String, table.VerifyFull, table.VerifyCA, table.VerifyOff), func(t *t) *table.Verify { return &t.Verify }),
	)
	brief := wordOr("a mapping of its settings", option[PoolTLS]{"on", usualPoolTLS}, option[PoolTLS]{"off", PoolTLS{}})
	return either(brief, fresh(usualPoolTLS, long))
}

// checkPoolTLS checks the TLS of the servers of a pool, and reads its files. Pools that inherit the same
// settings share the result, and their mistakes are reported once.
func (d *document) checkPoolTLS(p *Pool) {
	t := &p.TLS
	if !t.On {
		return
	}
	for i := range p.Servers {
		if s := &p.Servers[i]; s.Address.Network == "unix" {
			d.failAt(d.place(&s.Address, s), "pools.%s.tls: %s is a unix socket, and needs no TLS: its bytes do not leave this machine", p.Name, s.Address.text())
		}
	}
	made, ok := d.secured[*t]
	if !ok {
		made = d.readPoolTLS(p)
		d.secured[*t] = made
	}
	p.Security = made
}

func (d *document) readPoolTLS(p *Pool) (none table.Security) {
	t := &p.TLS
	at := func(setting any) *node { return cmp.Or(d.said(setting), d.said(&p.TLS), d.place(p)) }
	switch {
	case (t.Cert == "") != (t.Key == ""):
		d.failAt(at(&p.TLS), "tls needs both cert and key, or neither")
		return none
	case t.Verify != table.VerifyFull && t.Name != usualName:
		d.failAt(at(&t.Name), "tls.name has no effect with verify: %s: write verify: full", t.Verify)
		return none
	case t.Verify == table.VerifyOff && t.CA != usualCA:
		d.failAt(at(&t.CA), "tls.ca has no effect with verify: off: write verify: full, or verify: ca")
		return none
	case t.Verify == table.VerifyOff:
		d.warn(at(&t.Verify), "tls.verify is off: an attacker in the network can pretend to be a server; write verify: full, with the ca of the servers")
	}
	m := table.ServerTLS{Verify: t.Verify}
	if t.Name != usualName {
		m.Name = t.Name
	}
	if !d.others {
		return table.Secure(m)
	}
	if t.CA != usualCA {
		ca, ok := d.readCA(at(&t.CA), "tls.ca", t.CA)
		if !ok {
			return none
		}
		m.CA = string(ca)
	}
	if t.Cert != "" {
		cert, key, expires, ok := d.readPair(at(&t.Cert), at(&t.Key), t.Cert, t.Key, secure.ForClient)
		if !ok {
			return none
		}
		m.Cert, m.Key, m.Expires = string(cert), string(key), expires.Unix()
	}
	return table.Secure(m)
}

// checkOneSecurity rejects pools with a server in common and different TLS or logins, because they share
// the connections to it.
func (d *document) checkOneSecurity(f *File) {
	first := map[Address]*Pool{}
	for i := range f.Pools {
		p := &f.Pools[i]
		for j := range p.Servers {
			s := &p.Servers[j]
			o := first[s.Address]
			if o == nil {
				first[s.Address] = p
				continue
			}
			if what := o.differentSecurity(p); what != "" {
				d.failAt(d.place(&s.Address, s), "pools.%s and pools.%s have the server %s with different %s, and share its connections: write the same %s in both", o.Name, p.Name, s.Address.text(), what, what)
			}
		}
	}
}

// differentSecurity returns the first of tls and auth that p and o have different, or "".
func (p *Pool) differentSecurity(o *Pool) string {
	switch {
	case p.TLS != o.TLS:
		return "tls"
	case p.Auth != o.Auth:
		return "auth"
	}
	return ""
}

// checkListenerTLS checks the TLS t of a listener at the address a, and reads its files.
func (d *document) checkListenerTLS(t *ListenerTLS, a *Address) {
	switch {
	case !t.On || t.Cert == "" || t.Key == "": // an error for a missing path is already recorded
		return
	case a.Network == "unix":
		d.failAt(d.place(t), "tls: %s is a unix socket, and needs no TLS: its bytes do not leave this machine", a.text())
		return
	case !d.others:
		return
	}
	m, ok := &table.ListenerTLS{Handshake: t.Handshake}, false
	if m.Cert, m.Key, m.Expires, ok = d.readPair(d.place(&t.Cert, t), d.place(&t.Key, t), t.Cert, t.Key, secure.ForServer); !ok {
		return
	}
	if t.ClientCA != "" {
		if m.ClientCA, ok = d.readCA(d.place(&t.ClientCA, t), "tls.client_ca", t.ClientCA); !ok {
			return
		}
	}
	t.Material = m
}

// readCA reads and checks the CAs in the file at path, which the setting `what` names at the position at.
func (d *document) readCA(at *node, what, path string) (ca []byte, ok bool) {
	file, ok := d.readPEM(at, what, path)
	if !ok {
		return nil, false
	}
	if err := secure.CheckCA(file, time.Now()); err != nil {
		d.failAt(at, "%s: %v", what, err)
		return nil, false
	}
	return file.Text, true
}

// readPair reads and checks the files of a certificate and its key, which the settings cert and key of tls name at the given
// positions. It returns until when the certificate is valid.
func (d *document) readPair(atCert, atKey *node, cert, key string, use secure.Use) (certText, keyText []byte, expires time.Time, ok bool) {
	c, ok := d.readPEM(atCert, "tls.cert", cert)
	k, also := d.readPEM(atKey, "tls.key", key)
	if !ok || !also {
		return nil, nil, expires, false
	}
	expires, err := secure.CheckPair(c, k, use, time.Now())
	if err != nil {
		d.failAt(atCert, "tls: %v", err)
	}
	return c.Text, k.Text, expires, err == nil
}

// readPEM reads a file with certificates or a key: see readNamed.
func (d *document) readPEM(at *node, what, path string) (f secure.File, ok bool) {
	secret := ""
	if what == "tls.key" {
		secret = "the key"
	}
	text, ok := d.readNamed(at, what, path, secret)
	return secure.File{Path: path, Text: text}, ok
}

// fileChanges describes which certificates, keys, CAs and passwords of the pool differ from those of o.
func (p *Pool) fileChanges(o *Pool) (list []string) {
	if o.Login.User == p.Login.User && o.Login != p.Login {
		list = append(list, fmt.Sprintf("pool %s has another password for servers", p.Name))
	}
	if !o.Security.On() || !p.Security.On() {
		return list
	}
	was, is := o.Security.Settings(), p.Security.Settings()
	if was.Cert != is.Cert || was.Key != is.Key {
		list = append(list, fmt.Sprintf("pool %s shows servers another certificate%s", p.Name, untilDate(is.Expires)))
	}
	if was.CA != is.CA {
		list = append(list, fmt.Sprintf("pool %s has other CAs of servers", p.Name))
	}
	return list
}

// materialChanges describes how the certificates and CAs of a listener have changed.
func materialChanges(what string, was, is *table.ListenerTLS) (list []string) {
	if was == nil || is == nil {
		return nil
	}
	if string(was.Cert) != string(is.Cert) || string(was.Key) != string(is.Key) {
		list = append(list, fmt.Sprintf("%s has another certificate, valid until %s", what, is.Expires.UTC().Format(time.DateOnly)))
	}
	if string(was.ClientCA) != string(is.ClientCA) {
		list = append(list, what+" has other CAs of clients")
	}
	return list
}

func untilDate(expires int64) string {
	if expires == 0 {
		return ": none"
	}
	return ", valid until " + time.Unix(expires, 0).UTC().Format(time.DateOnly)
}
