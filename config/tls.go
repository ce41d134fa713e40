package config

// This file reads and checks the certificates, keys and CAs that a configuration file names.

import (
	"errors"
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
	return fresh(usualListenerTLS, group(usualListenerTLS,
		must(set("cert", "file with the certificate of the listener in PEM, followed by the CAs between it and the root", visible("a path", 4096), func(t *t) *string { return &t.Cert })),
		must(set("key", "file with the key of the certificate in PEM, without a password", visible("a path", 4096), func(t *t) *string { return &t.Key })),
		set("client_ca", "file with the CAs of clients; each client then needs a certificate of one of them", visible("a path", 4096), func(t *t) *string { return &t.ClientCA }),
		set("handshake", "disconnect a client whose handshake takes longer", duration(100*time.Millisecond, 5*time.Minute), func(t *t) *time.Duration { return &t.Handshake }),
	))
}

// checkListenerTLS checks the TLS of a listener, and reads its files.
func (d *document) checkListenerTLS(l *Listener) {
	t := &l.TLS
	switch {
	case !t.On || t.Cert == "" || t.Key == "": // an error for a missing path is already recorded
		return
	case l.Address.Network == "unix":
		d.failAt(d.place(&l.TLS), "tls: %s is a unix socket, and needs no TLS: its bytes do not leave this machine", l.Address.text())
		return
	case !d.others:
		return
	}
	cert, ok := d.readPEM(&t.Cert, &l.TLS, "tls.cert", t.Cert)
	key, also := d.readPEM(&t.Key, &l.TLS, "tls.key", t.Key)
	if !ok || !also {
		return
	}
	m := &table.ListenerTLS{Cert: cert.Text, Key: key.Text, Handshake: t.Handshake}
	var err error
	if m.Expires, err = secure.CheckPair(cert, key, secure.ForServer, time.Now()); err != nil {
		d.failAt(d.place(&t.Cert, &l.TLS), "tls: %v", err)
		return
	}
	if t.ClientCA != "" {
		ca, ok := d.readPEM(&t.ClientCA, &l.TLS, "tls.client_ca", t.ClientCA)
		if !ok {
			return
		}
		if err := secure.CheckCA(ca, time.Now()); err != nil {
			d.failAt(d.place(&t.ClientCA, &l.TLS), "tls.client_ca: %v", err)
			return
		}
		m.ClientCA = ca.Text
	}
	t.Material = m
}

// largestPEM is the largest size of a file of certificates in bytes. The CAs of a whole system need
// less.
const largestPEM = 1 << 20

// readPEM reads the file at path, which the setting `what` names. It records an error if that is not
// possible, or if every user of the machine may change the file. A key must also not be readable for
// every user, or readPEM warns.
func (d *document) readPEM(setting, enclosing any, what, path string) (f secure.File, ok bool) {
	at := d.place(setting, enclosing)
	text, info, err := readRegular(path, largestPEM+1)
	if err == nil {
		d.named = append(d.named, Named{path, info})
	}
	switch {
	case errors.Is(err, errNotRegular), err == nil && len(text) > largestPEM:
		err = fmt.Errorf("%s must be a file of %d bytes at most", path, largestPEM)
	case err == nil && info.Mode().Perm()&0o002 != 0:
		err = fmt.Errorf("every user of this machine may change %s: chmod o-w", path)
	}
	if err != nil {
		d.failAt(at, "%s: %v", what, err)
		return f, false
	}
	if what == "tls.key" && info.Mode().Perm()&0o004 != 0 {
		d.warn(at, "every user of this machine can read the key in %s: chmod o-r", path)
	}
	return secure.File{Path: path, Text: text}, true
}

// tlsChanges describes which listeners have other certificates, keys or CAs in the same files.
func tlsChanges(old, f *File) (list []string) {
	before := map[Address]*table.ListenerTLS{}
	for i := range old.Listen {
		before[old.Listen[i].Address] = old.Listen[i].TLS.Material
	}
	for i := range f.Listen {
		l := &f.Listen[i]
		was, is := before[l.Address], l.TLS.Material
		if was == nil || is == nil {
			continue
		}
		if string(was.Cert) != string(is.Cert) || string(was.Key) != string(is.Key) {
			list = append(list, fmt.Sprintf("listener %s has another certificate, valid until %s", l.Address.text(), is.Expires.UTC().Format(time.DateOnly)))
		}
		if string(was.ClientCA) != string(is.ClientCA) {
			list = append(list, fmt.Sprintf("listener %s has other CAs of clients", l.Address.text()))
		}
	}
	return list
}
