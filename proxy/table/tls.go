package table

// This file defines the TLS settings of listeners and servers.

import (
	"time"
	"unique"
)

// ListenerTLS holds the TLS settings of a listener: texts in the format PEM.
type ListenerTLS struct {
	Cert, Key []byte
	ClientCA  []byte        // CAs of the certificates that clients need; empty: clients need none
	Handshake time.Duration // longest duration of a handshake; a client that takes longer is disconnected
	Expires   time.Time     // when the first certificate of Cert expires
}

// ServerTLS holds the TLS settings of the servers of a pool: texts in the format PEM.
type ServerTLS struct {
	CA        string // CAs of the certificates of the servers; empty: those of the system
	Cert, Key string // the certificate that Ringside shows, and its key; empty: none
	Name      string // name that the certificate of a server must have; empty: the host of its address
	Verify    Verify
	Expires   int64 // when the first certificate of Cert expires, in Unix seconds; 0: there is none
}

// Verify is what is checked of the certificate of a server.
type Verify uint8

// The values of Verify.
const (
	VerifyFull Verify = iota // its CA and its name
	VerifyCA                 // its CA
	VerifyOff                // nothing
)

func (v Verify) String() string { return [...]string{"full", "ca", "off"}[v] }

// Security is the TLS of the connections to a server. The zero Security is none. Two with equal
// settings are equal.
type Security struct{ h unique.Handle[ServerTLS] }

// Secure returns the Security with the settings t.
func Secure(t ServerTLS) Security { return Security{unique.Make(t)} }

// On reports whether connections use TLS.
func (s Security) On() bool { return s != Security{} }

// Settings returns the settings. s must be on.
func (s Security) Settings() ServerTLS { return s.h.Value() }

// Outlasts reports whether connections that were made with s stay when the settings are those of t. They
// stay when certificates are renewed, and not when t demands something else of a server.
func (s Security) Outlasts(t Security) bool {
	if s == t || !s.On() || !t.On() {
		return s == t
	}
	a, b := s.Settings(), t.Settings()
	return a.Name == b.Name && a.Verify == b.Verify
}
