package e2e

// This file runs a proxy inside the test process, to switch off a rule, which no binary
// can do.

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"ringside/config"
	"ringside/internal/testenv"
	"ringside/proxy"
	"ringside/proxy/ablation"
	"ringside/proxy/loop"
)

// serveInside serves a configuration that has no listeners, and returns the address for
// clients.
func serveInside(t testing.TB, text string, without ablation.Set) (address string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inside.yaml")
	testenv.WriteFile(t, path, fmt.Appendf(nil, "listen: %s:0\n%s%s", ownHost(), text, poolDefaults(t)))
	f, err := config.Load(path, config.Environment()) // also reads the files of poolDefaults
	if err != nil {
		t.Fatal(err)
	}
	table, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.NewProxy(table, "inside", slog.New(slog.DiscardHandler))
	p.Ablation = without
	d, err := loop.New(p, loop.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		d.Shutdown(ended)
	})
	open, err := d.Listen(table)
	if err != nil {
		t.Fatal(err)
	}
	open()
	return d.Addrs()[0].String()
}
