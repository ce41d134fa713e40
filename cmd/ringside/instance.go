package main

// A running Ringside: engines, listeners, admin interface, reload, the end.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ringside/config"
	"ringside/proxy"
	"ringside/proxy/admin"
	"ringside/proxy/fault"
	"ringside/proxy/loop"
	"ringside/proxy/loop/pace"
)

// instance is one running Ringside.
type instance struct {
	log    *slog.Logger
	path   string // of the configuration; empty: it has no file
	file   *config.File
	proxy  *proxy.Proxy
	driver *loop.Driver
	admin  *admin.Server

	adminAddr net.Addr
	stopping  atomic.Bool

	mu     sync.Mutex
	reload admin.Reload
}

func newLogger(l config.Log, to io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.Level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}

// start builds and opens everything f describes.
func start(f *config.File, path string, log *slog.Logger) (*instance, error) {
	table, err := f.Build()
	if err != nil {
		return nil, err
	}
	limitMemory(f)
	r := &instance{log: log, path: path, file: f, reload: admin.Reload{At: time.Now(), Generation: 1}}
	r.proxy = proxy.NewProxy(table, versionText(), log)
	options := loopOptions(f.Engine)
	if f.Admin.Faults {
		options.Faults = &fault.Set{}
	}
	if !options.OrdinaryWait && os.Getenv("GOMAXPROCS") == "" {
		// Each loop keeps its processor while it waits; one more is for the
		// collector and everything else.
		runtime.GOMAXPROCS(max(2, options.Loops+1))
	}
	if r.driver, err = loop.New(r.proxy, options); err != nil {
		return nil, err
	}
	stop := func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.driver.Shutdown(ctx)
	}
	var l net.Listener
	if f.Admin.Address.Network != "" {
		if l, err = net.Listen(f.Admin.Address.Network, f.Admin.Address.Address); err != nil {
			stop()
			return nil, fmt.Errorf("cannot listen for admin on %s: %w", f.Admin.Address.Address, err)
		}
	}
	commit, err := r.driver.Listen(table)
	if err != nil {
		if l != nil {
			l.Close()
		}
		stop()
		return nil, err
	}
	if l != nil {
		r.adminAddr = l.Addr()
		r.admin = admin.New(r.proxy, admin.Options{Pprof: admin.Pprof(f.Admin.Pprof), Control: admin.Control(f.Admin.Control), Faults: options.Faults, Ready: r.ready, Reload: r.reloaded})
		go func() {
			if err := r.admin.Serve(l); err != nil {
				log.Error("admin interface ended", "error", err)
			}
		}()
	}
	commit()
	r.announce()
	return r, nil
}

// announce says what has been started.
func (r *instance) announce() {
	servers := 0
	for _, p := range r.file.Pools {
		servers += len(p.Servers)
	}
	r.log.Info("ringside starts", "version", versionText(), "file", r.path, "driver", r.driver.Name(), "loops", len(r.proxy.Engines()), "pools", len(r.file.Pools), "servers", servers)
	for _, a := range r.driver.Addrs() {
		r.log.Info("listening", "address", a.String())
	}
	if r.adminAddr != nil {
		r.log.Info("admin interface", "address", r.adminAddr.String())
	}
}

var paces = map[string]pace.Kind{"auto": pace.Auto, "answers": pace.Answers, "sleep": pace.Sleep}

func loopOptions(e config.Engine) loop.Options {
	o := loop.Options{Driver: e.Driver, Loops: e.Loops}
	// The raw wait gives its processor back when the runtime asks for it by a
	// signal; without those signals it would keep it.
	o.OrdinaryWait = e.Wait == "syscall" || strings.Contains(os.Getenv("GODEBUG"), "asyncpreemptoff=1")
	if c := e.CoalesceServer; c.On {
		o.Tune.HoldDue, o.Tune.HoldMax = c.MinDue, c.MaxHeld
	}
	if c := e.CoalesceClient; c.On {
		o.Tune.GroupWait, o.Tune.GroupSize = c.MaxDelay, c.MaxBytes
	}
	if m := e.Moderation; m.On {
		o.Moderation = pace.Settings{Above: m.Above, Sleep: m.Sleep, Pace: paces[m.Pace]}
	}
	return o
}

func (r *instance) ready() error {
	if r.stopping.Load() {
		return errors.New("stopping")
	}
	return nil
}

func (r *instance) reloaded() admin.Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reload
}

// again reads the configuration again and puts it in force, whole or not at
// all.
func (r *instance) again() {
	f, err := r.swap()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reload.At, r.reload.Err = time.Now(), err
	if err != nil {
		r.reload.Failed++
		r.log.Error("the configuration was refused; the old one stays in force", "file", r.path, "error", err)
		return
	}
	r.reload.Succeeded++
	r.reload.Generation++
	r.log.Info("the configuration was read again and is in force", "file", r.path, "generation", r.reload.Generation)
	for _, name := range restartOnly(r.file, f) {
		r.log.Warn("this change takes effect at the next start only", "key", name)
	}
	r.file = f
}

func (r *instance) swap() (*config.File, error) {
	f, err := config.Load(r.path)
	if err != nil {
		return nil, err
	}
	table, err := f.Build()
	if err != nil {
		return nil, err
	}
	commit, err := r.driver.Listen(table)
	if err != nil {
		return nil, err
	}
	limitMemory(f)
	r.proxy.Swap(table)
	commit()
	return f, nil
}

// limitMemory makes the collector work harder before garbage makes the process
// larger than the example file says a container needs. An operator's GOMEMLIMIT
// counts instead.
func limitMemory(f *config.File) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(f.Limits.Memory + f.Limits.Memory/4 + beside)
	}
}

// beside is what the runtime may take beside limits.memory and a quarter of it:
// half of what the example file grants, for the program itself is resident too.
const beside = 32 << 20

// restartOnly names the changed keys that a reload does not put in force.
func restartOnly(old, f *config.File) (names []string) {
	if old.Admin != f.Admin {
		names = append(names, "admin")
	}
	if old.Engine != f.Engine {
		names = append(names, "engine")
	}
	if old.Log != f.Log {
		names = append(names, "log")
	}
	return names
}

// serve runs until a signal ends it. A first SIGTERM or SIGINT lets clients
// have what they have asked for; a second one ends at once.
func (r *instance) serve(signals <-chan os.Signal) error {
	for s := range signals {
		if s == syscall.SIGHUP {
			if r.path == "" {
				r.log.Warn("nothing to read again: there is no configuration file")
			} else {
				r.again()
			}
			continue
		}
		r.log.Info("stopping", "signal", s.String(), "at_most", r.file.Limits.Drain.String())
		return r.stop(signals)
	}
	return nil
}

func (r *instance) stop(signals <-chan os.Signal) error {
	r.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), r.file.Limits.Drain)
	defer cancel()
	var hurried atomic.Bool
	go func() {
		for s := range signals {
			if s != syscall.SIGHUP {
				hurried.Store(true)
				cancel()
				return
			}
		}
	}()
	err := r.driver.Shutdown(ctx)
	if r.admin != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r.admin.Shutdown(ctx)
	}
	switch {
	case hurried.Load():
		return errors.New("ended at once by a second signal")
	case err != nil:
		r.log.Warn("stopped before all was answered", "error", err)
	default:
		r.log.Info("stopped")
	}
	return nil
}

// catch returns the signals that serve wants.
func catch() <-chan os.Signal {
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return c
}
