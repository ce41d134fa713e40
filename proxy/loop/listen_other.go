//go:build !linux

package loop

// Elsewhere than Linux there is one engine, so no port is shared.

func reusePort(uintptr) error { return nil }
