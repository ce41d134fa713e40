//go:build !linux

package loop

// This file has the socket options of systems other than Linux. There is one engine, so no port
// is shared, and package net sets the options of each client's socket.

func tune(int) {}

func reusePort(uintptr) error { return nil }
