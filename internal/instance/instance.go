// Package instance runs one Ringside process from start to end. It starts the engines,
// the listeners and the admin interface, reloads the configuration, and hands over to
// the next process.
package instance

// This file contains the lifetime of an instance: start, reload, stop.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

	"github.com/coreos/go-systemd/v22/daemon"

	"ringside/config"
	"ringside/internal/inspect"
	"ringside/internal/tracefile"
	"ringside/proxy"
	"ringside/proxy/admin"
	"ringside/proxy/event"
	"ringside/proxy/fault"
	"ringside/proxy/live"
	"ringside/proxy/loop"
	"ringside/proxy/table"
)

// Instance is one running Ringside process.
type Instance struct {
	log     *slog.Logger
	logging *logSettings
	watch   fileWatch    // watches the configuration file; without a path there is no file
	started *config.File // configuration at the start
	file    *config.File // configuration in force
	proxy   *proxy.Proxy
	driver  *loop.Driver
	faults  *fault.Set
	events  *live.Events  // log records for the dashboard
	admin   *admin.Server // nil: no admin interface
	tracer  *live.Tracer
	traces  *tracefile.Traces

	adminAddr     net.Addr
	adminListener net.Listener   // protected by mu, like adminFile and adminAt
	adminFile     fs.FileInfo    // the file of a unix socket, as this process or the one before it created it; nil: it is no unix socket
	adminAt       config.Address // as spelled in the configuration
	taken         *takeover      // sockets received from another instance; nil: none
	handover      handoverSocket // where the next process receives the sockets
	waiting       atomic.Bool    // this instance has the sockets of another process, which has not stopped accepting yet

	files    uint64 // limit of open files when limits.clients was fitted
	stopping atomic.Bool
	asked    chan chan<- reloadAnswer // requests for a reload; received by Serve
	askers   []chan<- reloadAnswer    // requests for a reload that has to wait
	handed   chan func()              // receives a function when another process has taken over; calling it tells that process that this one has stopped accepting
	ended    chan struct{}            // closed when Serve no longer receives from asked
	closed   chan struct{}            // closed when this process has stopped accepting, so nobody receives from handed

	mu     sync.Mutex
	reload live.Reload
}

// reloadAnswer is the result of a reload.
type reloadAnswer struct {
	done admin.Reloaded
	err  error
}

// start builds and opens everything that f describes. f was read from w.
func start(f *config.File, w fileWatch, version string, log *slog.Logger, logging *logSettings, taken *takeover) (*Instance, error) {
	t, err := f.Build()
	if err != nil {
		return nil, err
	}
	events := &live.Events{}
	log = slog.New(events.Tee(log.Handler()))
	if err := fitClients(t, f.Engine.Loops, log); err != nil {
		return nil, err
	}
	limitMemory(f)
	files, _ := openFiles()
	r := &Instance{files: files, log: log, logging: logging, watch: w, started: f, file: f, faults: &fault.Set{}, events: events,
		taken: taken, asked: make(chan chan<- reloadAnswer), handed: make(chan func()), ended: make(chan struct{}), closed: make(chan struct{}), reload: live.Reload{At: time.Now(), Generation: 1}}
	r.waiting.Store(taken != nil)
	r.proxy = proxy.NewProxy(t, version, log)
	r.proxy.Name = processName()
	r.tracer = live.NewTracer(r.proxy)
	r.traces = tracefile.New(r.tracer, log)
	options := loopOptions(f.Engine)
	options.Faults = r.faults
	if taken != nil {
		options.Inherited = taken.listeners
	}
	if !options.OrdinaryWait && os.Getenv("GOMAXPROCS") == "" {
		// Each loop keeps its processor while it waits. One more is for the garbage
		// collector and everything else.
		runtime.GOMAXPROCS(max(2, options.Loops+1))
	}
	if r.driver, err = loop.New(r.proxy, options); err != nil {
		return nil, err
	}
	take, err := r.open(f, t)
	if err != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.driver.Shutdown(ctx)
		return nil, err
	}
	take()
	r.announce()
	go func() { // servers may be slow to reply, or not running yet
		for _, w := range inspect.ItemSizes(context.Background(), t) {
			log.Warn(w)
		}
	}()
	return r, nil
}

// open opens the listeners and files of f, unless they are open already. t is the table
// of f. The returned take function replaces the old ones. Before take is called, and if
// open returns an error, nothing else changes.
func (r *Instance) open(f *config.File, t *table.Table) (take func(), err error) {
	takeAdmin, err := r.listenAdmin(f.Admin)
	if err != nil {
		return nil, err
	}
	takeTraces, err := r.traces.Open(f.Traces)
	if err != nil {
		takeAdmin(false)
		return nil, err
	}
	commit, err := r.driver.Listen(t)
	if err != nil {
		takeTraces(false)
		takeAdmin(false)
		return nil, err
	}
	return func() {
		commit()
		takeAdmin(true)
		takeTraces(true)
	}, nil
}

// Start runs an instance with f, without a file that could be reloaded.
func Start(f *config.File, version string, log *slog.Logger) (*Instance, error) {
	return start(f, fileWatch{}, version, log, nil, nil)
}

// Address returns the address of the first listener.
func (r *Instance) Address() string { return r.driver.Addrs()[0].String() }

// AdminAddress returns the address of the admin interface, which must exist.
func (r *Instance) AdminAddress() string { return r.adminAddr.String() }

// processName returns the name of this process in the list of instances: host and
// process ID.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.40s/%d", host, os.Getpid())
}

// listenAdmin opens the admin interface that a describes, if it is not open yet.
// Nothing else changes until take is called. take(true) puts the settings in force and
// shuts down an old interface at another address after its current requests.
// take(false) closes what was opened.
func (r *Instance) listenAdmin(a config.Admin) (take func(bool), err error) {
	access := admin.Access{Pprof: admin.Who(a.Pprof), Control: admin.Who(a.Control), Faults: a.Faults, Page: admin.Who(a.Page)}
	for _, name := range a.Names {
		access.Names = append(access.Names, strings.ToLower(name))
	}
	var l net.Listener
	same := r.admin != nil && a.Address == r.file.Admin.Address
	if !same && a.Address.Network != "" {
		if l = r.taken.listener(adminSocket(a.Address)); l == nil {
			l, err = listenOn(a.Address)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot listen for admin on %s: %w", a.Address.Address, err)
		}
	}
	return func(yes bool) {
		switch {
		case !yes && l != nil:
			l.Close()
		case !yes:
		case same:
			r.admin.Allow(access)
		default:
			if old := r.admin; old != nil {
				r.keepForeignFile()
				go shutdown(old)
			}
			if r.admin, r.adminAddr = nil, nil; l != nil {
				r.serveAdmin(l, access)
			}
			var file fs.FileInfo
			if l != nil && a.Address.Network == "unix" {
				file, _ = os.Lstat(a.Address.Address) // on an error another process has removed it
			}
			r.mu.Lock()
			r.adminListener, r.adminFile, r.adminAt = l, file, a.Address
			r.mu.Unlock()
		}
		if yes && !a.Faults {
			r.faults.LiftAll()
		}
	}, nil
}

func (r *Instance) serveAdmin(l net.Listener, access admin.Access) {
	o := admin.Options{Access: access, Events: r.events, Tracer: r.tracer, FaultSet: r.faults, Ready: r.ready, Reload: r.reloaded}
	if r.watch.path != "" {
		o.ReadAgain = r.readAgain
		o.HandOver = r.offerSockets
	}
	s := admin.New(r.proxy, o)
	r.admin, r.adminAddr = s, l.Addr()
	go func() {
		if err := s.Serve(l); err != nil {
			r.log.Error("admin interface ended", "error", err)
		}
	}()
}

// listenOn listens on the address of the admin interface.
func listenOn(a config.Address) (net.Listener, error) {
	if a.Network == "unix" {
		if err := loop.RemoveStale(a.Address); err != nil {
			return nil, err
		}
	}
	return net.Listen(a.Network, a.Address)
}

// keepForeignFile makes the end of the admin interface leave the file of its unix socket,
// if another process has replaced that file.
func (r *Instance) keepForeignFile() {
	r.mu.Lock()
	defer r.mu.Unlock()
	loop.KeepForeignFile(r.adminListener, r.adminFile)
}

// shutdown stops an admin interface after its current requests, within one second.
func shutdown(s *admin.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Shutdown(ctx)
}

// announce logs the start.
func (r *Instance) announce() {
	servers := 0
	for _, p := range r.file.Pools {
		servers += len(p.Servers)
	}
	r.log.Info("ringside starts", event.Started.Attr(), "version", r.proxy.Version, "file", r.watch.path, "driver", r.driver.Name(), "loops", len(r.proxy.Engines()), "pools", len(r.file.Pools), "servers", servers)
	r.warn(r.file)
	for i := range r.file.Pools {
		p := &r.file.Pools[i]
		r.log.Info("pool", event.Hidden.Attr(), "name", p.Name, "failover", p.Failover.Mode.String(), "because", p.Failover.WhyMode, "at_return", r.file.AtReturn(p.Name))
	}
	for _, l := range r.proxy.Table().Listeners {
		for i := range l.Routes {
			if rt := &l.Routes[i]; rt.Class != "" || rt.Autocreate != nil {
				s := inspect.SummaryOf(rt, r.proxy.Table().Limits.Key)
				r.log.Info("route", "listener", l.Address, "prefix", rt.Prefix, "match", rt.Match, "pool", rt.Pool.Name, "class", s.Class,
					"replicas", s.Replicas, "consistency", s.Consistency, "autocreate", rt.Autocreate != nil, "lost_with_a_server", s.Lost)
			}
		}
	}
	for _, a := range r.driver.Addrs() {
		r.log.Info("listening", event.Hidden.Attr(), "address", a.String())
	}
	if r.adminAddr != nil {
		r.log.Info("admin interface", event.Hidden.Attr(), "address", r.adminAddr.String())
	}
}

// warn logs the valid but questionable settings of f.
func (r *Instance) warn(f *config.File) {
	for _, w := range f.Warnings {
		r.log.Warn("configuration accepted with a warning", "warning", w)
	}
}

var paces = map[string]loop.Kind{"auto": loop.Auto, "answers": loop.Answers, "sleep": loop.Sleep}

func loopOptions(e config.Engine) loop.Options {
	o := loop.Options{Driver: e.Driver, Loops: e.Loops}
	// The raw wait releases its processor when the runtime requests it by a signal.
	// Without these signals it would keep the processor.
	o.OrdinaryWait = e.Wait == "syscall" || strings.Contains(os.Getenv("GODEBUG"), "asyncpreemptoff=1")
	if c := e.CoalesceServer; c.On {
		o.Tune.HoldDue, o.Tune.HoldMax = c.MinDue, c.MaxHeld
	}
	if c := e.CoalesceClient; c.On {
		o.Tune.GroupWait, o.Tune.GroupSize = c.MaxDelay, c.MaxBytes
	}
	if m := e.Moderation; m.On {
		o.Moderation = loop.Settings{Above: m.Above, Sleep: m.Sleep, Pace: paces[m.Pace]}
	}
	return o
}

func (r *Instance) ready() error {
	if r.stopping.Load() {
		return errors.New("stopping")
	}
	return nil
}

func (r *Instance) reloaded() live.Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reload
}

// readAgain asks Serve for a reload and waits for the result.
func (r *Instance) readAgain() (admin.Reloaded, error) {
	answer := make(chan reloadAnswer, 1)
	select {
	case r.asked <- answer:
	case <-r.ended:
		return admin.Reloaded{}, admin.ErrStopping
	}
	select {
	case a := <-answer:
		return a.done, a.err
	case <-r.ended:
		return admin.Reloaded{}, admin.ErrStopping
	}
}

// reread reloads the configuration and answers all askers. If a reload is not possible
// yet, it returns a channel that fires when to retry. again means that this was logged
// before.
func (r *Instance) reread(again bool) (later <-chan time.Time) {
	if is, err := r.proxy.Snapshot(); err == nil && is.Unsettled > 0 {
		r.watch.reading()
		if !again {
			r.log.Info("reload delayed: replicated keys still move to the servers of the previous configuration")
		}
		return time.After(is.Unsettled)
	}
	var a reloadAnswer
	a.done, a.err = r.again()
	for _, to := range r.askers {
		to <- a
	}
	r.askers = nil
	return nil
}

// again reloads the configuration. It applies the new one completely or not at all, and
// returns when all loops use it.
func (r *Instance) again() (admin.Reloaded, error) {
	r.tellReloading()
	defer r.tellReady()
	f, moves, err := r.applyFile()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reload.At, r.reload.Err = time.Now(), err
	if err != nil {
		r.reload.Failed++
		r.log.Error("new configuration rejected; the old one stays in force", event.ConfigRejected.Attr(), "file", r.watch.path, "error", err)
		return admin.Reloaded{}, err
	}
	r.reload.Succeeded++
	r.reload.Generation++
	done := admin.Reloaded{File: r.watch.path, Generation: r.reload.Generation, Changes: config.Changes(r.file, f), NextStart: config.AtNextStart(r.started, f), Moves: moves}
	r.log.Info("new configuration in force", event.ConfigAdopted.Attr(), "file", done.File, "generation", done.Generation, "changes", strings.Join(done.Changes, "; "))
	r.warn(f)
	if len(done.NextStart) > 0 {
		r.log.Warn("some changes take effect at the next start only", "changes", strings.Join(done.NextStart, "; "))
	}
	r.file = f
	return done, nil
}

// applyFile puts the file in force. moves reports that replicated keys move to other servers
// as a result.
func (r *Instance) applyFile() (f *config.File, moves bool, err error) {
	r.watch.reading()
	f, err = config.Load(r.watch.path)
	if err != nil {
		return nil, false, err
	}
	t, err := f.Build()
	if err != nil {
		return nil, false, err
	}
	if err := fitClients(t, r.started.Engine.Loops, r.log); err != nil {
		return nil, false, err
	}
	take, err := r.open(f, t)
	if err != nil {
		return nil, false, err
	}
	limitMemory(f)
	r.logging.set(f.Log)
	r.proxy.SetTable(t)
	take()
	is, err := r.proxy.Snapshot() // each loop adopts the table before it answers
	if err != nil {
		r.log.Warn("new configuration in force, but not all loops use it yet", "error", err)
		return f, false, nil
	}
	return f, is.Moving, nil
}

// refit fits limits.clients again if the number of files that the process may open has
// changed (prlimit).
func (r *Instance) refit() {
	files, known := openFiles()
	if !known || files == r.files {
		return
	}
	r.files = files
	t, err := r.file.Build()
	if err == nil {
		err = fitClients(t, r.started.Engine.Loops, r.log)
	}
	if err != nil {
		r.log.Error("limits.clients not adapted to the new limit of open files", "open_files", files, "error", err)
		return
	}
	r.log.Info("limit of open files changed", "open_files", files, "clients", t.Limits.Clients)
	r.proxy.SetTable(t)
}

// limitMemory sets the memory limit of the Go runtime. The garbage collector then works
// harder before the process becomes larger than the example configuration says a
// container needs. GOMEMLIMIT in the environment overrides it.
func limitMemory(f *config.File) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(f.Limits.Memory + f.Limits.Memory/4 + beside)
	}
}

// beside is the memory in bytes that the runtime may use in addition to 1.25 times
// limits.memory. The example configuration says that a container needs 64 MiB in
// addition. This is half of it; the other half is for the memory of the program itself.
const beside = 32 << 20

// poolsEvery is the interval at which servers are asked which pools eject them. Tests
// shorten it.
var poolsEvery = time.Minute

// Serve runs until a signal ends it. After the first SIGTERM or SIGINT, requests in
// flight complete; a second one ends it at once.
func (r *Instance) Serve(signals <-chan os.Signal) error {
	r.tellReady()
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	looking := true
	bounds := boundLog{r.log, map[string]*saidBound{}}
	counts := time.NewTicker(boundsEvery)
	defer counts.Stop()
	pools := time.NewTicker(poolsEvery)
	defer pools.Stop()
	var later <-chan time.Time // fires when a delayed reload is due
	for {
		if on := r.file.Watch && r.watch.path != ""; on != looking {
			if looking = on; on {
				looks.Reset(lookEvery)
			} else {
				looks.Stop()
			}
		}
		select {
		case answer := <-r.asked:
			r.askers = append(r.askers, answer)
			later = r.reread(later != nil)
		case <-later:
			later = r.reread(true)
		case <-looks.C:
			if r.watch.changed() {
				later = r.reread(later != nil)
			}
		case done := <-r.handed:
			close(r.ended)
			r.leave()
			if r.admin != nil {
				shutdown(r.admin)
				r.admin = nil
			}
			done()
			return r.drainClients(signals)
		case now := <-counts.C:
			r.refit()
			if is, err := r.proxy.Bounds(); err == nil { // otherwise /healthz reports that a loop hangs
				bounds.check(is, now)
			}
			if r.admin != nil {
				bounds.one("admin connections", r.admin.Closed(), now, "connections to the admin interface closed: too many are open; health probes are still served")
			}
		case <-pools.C:
			r.proxy.AskPools()
		case s := <-signals:
			switch {
			case s != syscall.SIGHUP:
				close(r.ended)
				r.log.Info("stopping", "signal", s.String(), "linger", r.file.Limits.Linger.String(), "at_most", (r.file.Limits.Linger + r.file.Limits.Drain).String())
				return r.Stop(signals, r.file.Limits.Linger)
			case r.watch.path == "":
				r.log.Warn("reload ignored: the process was started without a configuration file")
			default:
				later = r.reread(later != nil)
			}
		}
	}
}

// End ends the instance at once.
func (r *Instance) End() {
	now := make(chan os.Signal)
	close(now)
	r.Stop(now, 0)
}

// oneStop is the time in which several signals count as one. For example, timeout(1)
// signals the process and then its process group, which includes the process again.
const oneStop = 500 * time.Millisecond

// Stop makes /readyz report that the instance is stopping. It accepts new clients for
// the duration linger, because load balancers notice it late. Then it completes the
// requests in flight.
func (r *Instance) Stop(signals <-chan os.Signal, linger time.Duration) error {
	r.stopping.Store(true)
	r.tellSupervisor(daemon.SdNotifyStopping, fmt.Sprintf("STATUS=stopping: requests in flight get replies, for at most %s", linger+r.file.Limits.Drain))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var hurried atomic.Bool
	began := time.Now()
	go func() {
		for s := range signals {
			if s != syscall.SIGHUP && time.Since(began) > oneStop {
				hurried.Store(true)
				cancel()
				return
			}
		}
	}()
	select {
	case <-time.After(linger):
	case <-ctx.Done():
	case done := <-r.handed: // new clients go to the other process
		r.leave()
		done()
	}
	select {
	case <-r.closed:
	default:
		if r.handover.end() { // the other process may not have taken over yet
			r.leave()
		}
	}
	ctx, done := context.WithTimeout(ctx, r.file.Limits.Drain)
	defer done()
	err := r.driver.Shutdown(ctx)
	r.traces.Close()
	if r.admin != nil {
		r.keepForeignFile()
		shutdown(r.admin)
	}
	switch {
	case hurried.Load():
		return errors.New("ended at once by a second signal")
	case err != nil:
		r.log.Warn("stopped before all requests had replies", "error", err)
	default:
		r.log.Info("stopped")
	}
	return nil
}

// Catch returns a channel with the signals that Serve handles.
func Catch() <-chan os.Signal {
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return c
}
