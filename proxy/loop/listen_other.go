//go:build !linux

package loop

// Socket options on systems other than Linux. There is one engine, so no port is shared, and
// package net sets the options of each client's socket.

func tune(int) {}

func reusePort(uintptr) error { return nil }
