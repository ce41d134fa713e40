//go:build !linux

package loop

// Elsewhere than Linux there is one engine, so no port is shared, and package net sets
// the options of each client's socket.

func tune(int) {}

func reusePort(uintptr) error { return nil }
