package table

// This file defines the TLS settings of a listener.

import "time"

// ListenerTLS holds the TLS settings of a listener: texts in the format PEM.
type ListenerTLS struct {
	Cert, Key []byte
	ClientCA  []byte        // CAs of the certificates that clients need; empty: clients need none
	Handshake time.Duration // longest duration of a handshake; a client that takes longer is disconnected
	Expires   time.Time     // when the first certificate of Cert expires
}
