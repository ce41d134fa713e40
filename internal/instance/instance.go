// Package instance runs one Ringside process from start to end. It starts the engines,
// the listeners and the admin interface, reloads the configuration, and hands over to
// the next process.
package instance

// This file contains the lifetime of an instance: start, reload and stop.

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"ringside/config"
	"ringside/internal/discover"
	"ringside/internal/inspect"
	"ringside/internal/tracefile"
	"ringside/proxy"
	"ringside/proxy/admin"
	"ringside/proxy/event"
	"ringside/proxy/failover"
	"ringside/proxy/fault"
	"ringside/proxy/link"
	"ringside/proxy/live"
	"ringside/proxy/loop"
	"ringside/proxy/secure"
	"ringside/proxy/table"
)

// Instance is one running Ringside process.
type Instance struct {
	log          *slog.Logger     // for lines that are written once
	lines        *link.LimitedLog // for all other lines
	logging      *logSettings
	watch        fileWatch    // detects changes of the configuration file; without a path, there is no file
	started      *config.File // the configuration with which the process was started
	file         *config.File // the configuration that is in force now; written under mu
	sources      *discover.Watch
	listRejected bool                              // the last change of the servers of sources was rejected
	dial         atomic.Pointer[map[string]string] // where to connect to servers that are not at their address in the table
	proxy        *proxy.Proxy
	driver       *loop.Driver
	faults       *fault.Set
	events       *live.Events  // recent log records, which the dashboard shows
	admin        *admin.Server // server of the admin interface; nil: there is none
	tracer       *live.Tracer
	traces       *tracefile.Traces

	adminAddr     net.Addr
	adminListener net.Listener   // listener of the admin interface; protected by mu
	adminFile     fs.FileInfo    // file of the admin interface's unix socket, as a Ringside process has created it; nil: it is no unix socket; protected by mu
	adminAt       config.Address // address of the admin interface, as the configuration spells it; protected by mu
	taken         *takeover      // listening sockets that were received from another instance; nil: none
	handover      handoverSocket // the socket on which the next process receives the listening sockets
	waiting       atomic.Bool    // true while the process from which this one has received its sockets still accepts clients

	again    []string // unix sockets that the last change of the configuration has created again, one sentence each
	resizes  []string // what the last change of the configuration does to keys with one copy: see table.Table.Resizes
	files    uint64   // the limit of open files when limits.clients was last compared with it
	stopping atomic.Bool
	joined   chan struct{}          // receives when a pool uses the list of its peers: see proxy.Proxy.Joined
	unknown  atomic.Pointer[string] // why the instance is not ready, because the servers of a pool are not known; empty: they are
	asked    chan reloadRequest     // requests for a reload; received by Serve
	askers   []reloadRequest        // reloads that were requested but have to wait
	handed   chan func()            // receives a function when another process has taken over; calling the function informs that process that this one has stopped accepting
	ended    chan struct{}          // closed when Serve does not receive from the channel asked any more
	closed   chan struct{}          // closed when this process has stopped accepting, and does not receive from the channel handed any more

	mu     sync.Mutex
	reload live.Reload
	same   []string // the warnings about servers at the same address that were logged last; protected by mu
}

// reloadRequest is a request for a reload through the admin interface.
type reloadRequest struct {
	accept bool                // more keys may move than max_move of a pool allows
	dead   []string            // pools whose servers in use are dead, as the operator says
	answer chan<- reloadAnswer // receives the result
}

// reloadAnswer is the result of a reload: what has changed, or an error.
type reloadAnswer struct {
	done admin.Reloaded
	err  error
}

// start builds and opens everything that the configuration f describes. w is the file
// from which f was read.
func start(f *config.File, w fileWatch, version string, log *slog.Logger, logging *logSettings, taken *takeover) (*Instance, error) {
	events := &live.Events{}
	log = slog.New(events.Tee(log.Handler()))
	lines := &link.LimitedLog{Log: log}
	sources := discover.NewWatch(asker, log)
	wait := firstAnswers
	if taken != nil {
		wait = time.Minute // the old process serves meanwhile; a lookup has a shorter time limit
		sources.Inherit(taken.sources)
	}
	f, t, err := firstServers(f, sources, wait, log)
	if err == nil && taken != nil && len(f.Unknown()) > 0 {
		err = fmt.Errorf("no take-over, because the servers of pool %s are not known: %s", f.Unknown()[0], sources.Why(f.Unknown()[0]))
	}
	if err != nil {
		sources.Stop()
		return nil, err
	}
	if err := fitClients(f, t, f.Engine.Loops, lines); err != nil {
		return nil, err
	}
	limitMemory(f)
	files, _ := openFiles()
	r := &Instance{files: files, log: log, lines: lines, logging: logging, watch: w, started: f, file: f, sources: sources, faults: &fault.Set{}, events: events,
		taken: taken, joined: make(chan struct{}, 1), asked: make(chan reloadRequest), handed: make(chan func()), ended: make(chan struct{}), closed: make(chan struct{}), reload: live.Reload{At: time.Now(), Generation: 1}}
	r.follow(f)
	r.waiting.Store(taken != nil)
	r.proxy = proxy.NewProxy(t, version, log)
	r.proxy.Name = processName()
	r.proxy.Joined = func() {
		select {
		case r.joined <- struct{}{}:
		default:
		}
	}
	r.tracer = live.NewTracer(r.proxy)
	r.traces = tracefile.New(r.tracer, log)
	options := loopOptions(f.Engine)
	options.Faults, options.Locate, options.Refused = r.faults, r.locate, r.refused
	if taken != nil {
		options.Inherited = taken.listeners
	}
	if !options.OrdinaryWait && os.Getenv("GOMAXPROCS") == "" {
		// Each loop keeps its processor (P of the Go scheduler) while it waits. One more
		// is needed for the garbage collector and everything else.
		runtime.GOMAXPROCS(max(2, options.Loops+1))
	}
	if r.driver, err = loop.New(r.proxy, options); err != nil {
		sources.Stop()
		return nil, err
	}
	r.handover.tickets = &r.driver.Tickets
	take, err := r.open(f, t)
	if err != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r.driver.Shutdown(ctx)
		sources.Stop()
		return nil, err
	}
	take()
	r.announce()
	r.warnSame(f, t)
	go func() { // in the background, because servers may be slow to reply, or may not run yet
		for _, w := range inspect.ItemSizes(context.Background(), t, f.Dial()) {
			log.Warn(w)
		}
	}()
	return r, nil
}

// open opens the listeners and files of the configuration f that are not open yet. t is
// the table of f. The returned function take puts them in the place of the old ones.
// Nothing else changes before take is called, or if open returns an error.
func (r *Instance) open(f *config.File, t *table.Table) (take func(), err error) {
	takeAdmin, err := r.listenAdmin(f.Admin, f.Permissions())
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

// Start runs an instance with the configuration f. It has no file, so it cannot reload.
func Start(f *config.File, version string, log *slog.Logger) (*Instance, error) {
	return start(f, fileWatch{}, version, log, nil, nil)
}

// Address returns the address of the first listener.
func (r *Instance) Address() string { return r.driver.Addrs()[0].String() }

// AdminAddress returns the address of the admin interface. It must not be called for an
// instance without one.
func (r *Instance) AdminAddress() string { return r.adminAddr.String() }

// processName returns the name of this process in the list of instances: the host and the
// process ID.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.40s/%d", host, os.Getpid())
}

// listenAdmin opens the admin interface that a describes, if it is not open yet, or if the file of its unix socket was removed. permissions says what its users may do. Nothing
// else changes until the returned function take is called. take(true) puts the settings
// in force, and shuts down the old interface, if another one is open now, after its current
// requests. take(false) closes what listenAdmin has opened.
func (r *Instance) listenAdmin(a config.Admin, permissions *table.Permissions) (take func(bool), err error) {
	access := admin.Access{Pprof: admin.Who(a.Pprof), Control: admin.Who(a.Control), Faults: a.Faults, Page: admin.Who(a.Page)}
	for _, name := range a.Names {
		access.Names = append(access.Names, strings.ToLower(name))
	}
	if access.Security, err = adminSecurity(a); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	access.Permissions = permissions
	var l net.Listener
	same := r.admin != nil && a.Address == r.file.Admin.Address && !loop.Gone(a.Address.Network, a.Address.Address)
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
				file, _ = os.Lstat(a.Address.Address) // an error means that another process has removed the file
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

// adminSecurity returns the TLS and the users of the admin interface that a describes. A client without
// a certificate can still ask for its health.
func adminSecurity(a config.Admin) (is admin.Security, err error) {
	if is.Users = a.Users; a.AuthFile != "" && a.Users == nil {
		is.Users = new(table.Users) // Parse does not read the auth_file; with an empty list of users, every password is wrong
	}
	if a.TLS.On && a.TLS.Material == nil {
		return is, errors.New("the files of tls were not read")
	}
	if m := a.TLS.Material; m != nil {
		is.Expires, is.Certificate = m.Expires, len(m.ClientCA) > 0
		if is.TLS, err = secure.ListenerConfig(m); err == nil && is.Certificate {
			is.TLS.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	return is, err
}

func (r *Instance) serveAdmin(l net.Listener, access admin.Access) {
	o := admin.Options{Access: access, Events: r.events, Tracer: r.tracer, FaultSet: r.faults, Ready: r.ready, Reload: r.reloaded, Sources: r.sources.States, Locate: r.locate}
	if r.watch.path != "" {
		o.ReadAgain = r.readAgain
		o.Config = r.config
		o.HandOver = r.offerSockets
	}
	s := admin.New(r.proxy, o)
	r.admin, r.adminAddr = s, l.Addr()
	go func() {
		if err := s.Serve(l); err != nil {
			r.lines.LogLimited(slog.LevelError, "", "admin interface ended", "error", err)
		}
	}()
}

// listenOn listens on the address a for the admin interface. It first removes the file of
// a unix socket that no process uses any more.
func listenOn(a config.Address) (net.Listener, error) {
	if a.Network == "unix" {
		if err := loop.RemoveStale(a.Address); err != nil {
			return nil, err
		}
	}
	return net.Listen(a.Network, a.Address)
}

// keepForeignFile keeps the file of the admin interface's unix socket if another process
// has replaced it. Otherwise, closing the listener would remove the file of that process.
func (r *Instance) keepForeignFile() {
	r.mu.Lock()
	defer r.mu.Unlock()
	loop.KeepForeignFile(r.adminListener, r.adminFile)
}

// shutdown stops the admin interface s after its current requests, and after one second
// at the latest.
func shutdown(s *admin.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Shutdown(ctx)
}

// announce logs the start of the process with its pools, routes and addresses.
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
				r.log.Info("route", event.Hidden.Attr(), "listener", l.Address, "prefix", rt.Prefix, "match", rt.Match, "pool", rt.Pool.Name, "class", s.Class,
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

// warn logs the settings of f that are valid but probably not intended.
func (r *Instance) warn(f *config.File) {
	bySource := f != r.file && bytes.Equal(f.Source, r.file.Source) // the servers of a source have changed, and not the file
	for _, w := range f.Warnings {
		of := w
		if bySource {
			if slices.Contains(r.file.Warnings, w) {
				continue
			}
			of = "source" // the warnings can have any text
		}
		r.lines.LogOrder(slog.LevelWarn, of, "configuration accepted with a warning", "warning", w)
	}
}

func loopOptions(e config.Engine) loop.Options {
	o := loop.Options{Driver: e.Driver, Loops: e.Loops, Tune: link.DefaultTune}
	// An epoll loop releases its processor only when the Go runtime interrupts it with a signal. If
	// these signals are switched off, it must wait in the ordinary way.
	o.OrdinaryWait = strings.Contains(os.Getenv("GODEBUG"), "asyncpreemptoff=1")
	if e.Moderation {
		o.Moderation = loop.DefaultModeration
	}
	return o
}

func (r *Instance) ready() error {
	if r.stopping.Load() {
		return errors.New("stopping")
	}
	if err := r.unready(); err != nil {
		return err
	}
	if !slices.ContainsFunc(r.proxy.Table().Listeners, func(l table.Listener) bool { return !loop.Gone(l.Network, l.Address) }) {
		return errors.New("no client can connect, because the files of all unix sockets were removed: ringside reload creates them again")
	}
	return uncertain(r.proxy.Agents(), time.Since(r.proxy.Started))
}

// certainWait is how long after its start an instance may be not ready because it has no lease yet. It is a
// limit because servers may be down, and other instances must be replaced then, too.
const certainWait = 10 * time.Second

// uncertain returns an error if an instance that was started this time ago serves no key of a pool yet, because
// of strict consistency: it has not had a lease for any of the servers.
func uncertain(agents map[*table.Pool]*failover.Agent, ago time.Duration) error {
	if ago >= certainWait {
		return nil
	}
	var names []string
	for p, a := range agents {
		if p.Failover.Strict && !a.View.HadLease() {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("it is not certain yet which servers of %s are in use", strings.Join(names, ", "))
}

func (r *Instance) reloaded() live.Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.reload
	if !r.stopping.Load() {
		is.Gone = r.gone()
	}
	return is
}

// gone returns the paths of the unix sockets whose files were removed: those of listeners and of the admin interface.
func (r *Instance) gone() (paths []string) {
	for _, l := range r.proxy.Table().Listeners {
		if loop.Gone(l.Network, l.Address) {
			paths = append(paths, l.Address)
		}
	}
	if a := r.file.Admin.Address; loop.Gone(a.Network, a.Address) {
		paths = append(paths, a.Address)
	}
	return paths
}

func (r *Instance) config() admin.ConfigAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := admin.ConfigAnswer{File: r.watch.path, Text: string(r.file.Source), Variables: r.file.Variables, Sources: r.sources.Lists()}
	for _, p := range r.proxy.Table().Pools {
		if p.Next == nil && p.Joins == nil {
			continue
		}
		if p.Next != nil && r.proxy.Ends(p) {
			p = p.Successor()
		}
		if p.Text != nil {
			is.Lists = append(is.Lists, admin.ListInUse{Pool: p.Name, Text: string(p.Text)})
		}
	}
	return is
}

// readAgain requests a reload from Serve and waits for the result.
func (r *Instance) readAgain(accepts admin.Consent) (admin.Reloaded, error) {
	var dead []string
	if accepts.Dead {
		if dead = r.proxy.CutOff(); len(dead) == 0 {
			return admin.Reloaded{}, admin.ErrNotCutOff
		}
	}
	answer := make(chan reloadAnswer, 1)
	select {
	case r.asked <- reloadRequest{accepts.Moves, dead, answer}:
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

// reloads is the subject of lines in the log about reloads, which therefore keep their order.
const reloads = "reloads"

// reread reloads the configuration and sends the result to all that have requested it. While
// instances may be in different stages of the handover of an earlier reload, no reload is possible. In
// this case reread returns a channel that fires when the reload must be tried again. again means that
// the delay is already logged.
func (r *Instance) reread(again bool) (later <-chan time.Time) {
	if is, err := r.proxy.Snapshot(); err == nil && is.Unsettled > 0 {
		r.watch.reading()
		if !again {
			r.lines.LogOrder(slog.LevelInfo, reloads, "reload delayed: instances may still be in different stages of the handover of the previous reload")
		}
		return time.After(is.Unsettled)
	}
	accept := slices.ContainsFunc(r.askers, func(q reloadRequest) bool { return q.accept })
	f, settle, pending, err := r.load(accept)
	if pending != nil {
		if !again {
			r.lines.LogOrder(slog.LevelInfo, reloads, "reload delayed: new sources of servers are asked first")
		}
		return pending
	}
	r.tellReloading()
	var moves bool
	if err == nil {
		f, moves, err = r.apply(f, accept)
	}
	var a reloadAnswer
	a.done, a.err = r.adopt(f, moves, err)
	if a.err == nil {
		settle(true)
	}
	r.listRejected = false
	r.sources.Use(r.file, true)
	for _, q := range r.askers {
		one := a
		if a.err == nil && len(q.dead) > 0 {
			r.lines.LogOrder(slog.LevelWarn, reloads, "an operator says that the servers in use are dead", "pools", strings.Join(q.dead, ", "))
			r.proxy.DeclareDead(q.dead)
			one.done.Dead = q.dead
		}
		q.answer <- one
	}
	r.askers = nil
	return nil
}

// leaveJoined puts the configuration in force again, after a pool has used the list of its peers: see table.Table.Join. It waits
// like a reload, and returns a channel that fires when it must be tried again.
func (r *Instance) leaveJoined() (later <-chan time.Time) {
	if !r.proxy.Joins() { // a reload has done it
		return nil
	}
	if is, err := r.proxy.Snapshot(); err == nil && is.Unsettled > 0 {
		return time.After(is.Unsettled)
	}
	if _, _, err := r.apply(r.file, true); err != nil {
		r.lines.LogLimited(slog.LevelError, "joined", "the servers of this configuration are not used yet; it is tried again", "error", err)
		return time.After(time.Second)
	}
	r.lines.LogOrder(slog.LevelInfo, reloads, "this instance uses the servers of its configuration now, like after a reload")
	return nil
}

// adopt records and reports the result of a reload, or of a change of the servers of sources: the
// configuration f is in force, or is rejected because of err. moves reports that replicated keys move to
// other servers.
func (r *Instance) adopt(f *config.File, moves bool, err error) (admin.Reloaded, error) {
	defer r.tellReady()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reload.At, r.reload.Err = time.Now(), err
	if err != nil {
		r.reload.Failed++
		r.lines.LogOrder(slog.LevelError, reloads, "new configuration rejected; the old one stays in force", event.ConfigRejected.Attr(), "file", r.watch.path, "error", err)
		return admin.Reloaded{}, err
	}
	r.reload.Succeeded++
	r.reload.Generation++
	done := admin.Reloaded{File: r.watch.path, Generation: r.reload.Generation, Changes: append(config.Changes(r.file, f), r.again...), NextStart: config.AtNextStart(r.started, f), Resize: r.resizes, Moves: moves}
	r.lines.LogOrder(slog.LevelInfo, reloads, "new configuration in force", event.ConfigAdopted.Attr(), "file", done.File, "generation", done.Generation, "changes", strings.Join(done.Changes, "; "))
	r.warn(f)
	if len(r.resizes) > 0 {
		r.lines.LogOrder(slog.LevelInfo, reloads, "servers of a pool change", "what", strings.Join(r.resizes, "; "))
	}
	if len(done.NextStart) > 0 {
		r.lines.LogOrder(slog.LevelWarn, reloads, "some changes take effect at the next start only", "changes", strings.Join(done.NextStart, "; "))
	}
	r.file = f
	return done, nil
}

// apply puts the configuration f in force, completely or not at all. It returns when all loops use it.
// moves reports that replicated keys move to other servers because of it. With accept, more keys may
// move than max_move allows.
func (r *Instance) apply(f *config.File, accept bool) (_ *config.File, moves bool, err error) {
	t, err := f.Build()
	if err != nil {
		return nil, false, err
	}
	if !accept {
		if err := r.checkMoves(f, t); err != nil {
			return nil, false, err
		}
	}
	if err := fitClients(f, t, r.started.Engine.Loops, r.lines); err != nil {
		return nil, false, err
	}
	gone := r.gone()
	take, err := r.open(f, t)
	if err != nil {
		return nil, false, err
	}
	r.again = nil
	for _, path := range gone {
		if !loop.Gone("unix", path) {
			r.again = append(r.again, "the file of unix:"+path+" was removed, and is created again")
		}
	}
	limitMemory(f)
	r.logging.set(f)
	r.follow(f)
	r.resizes = t.Resizes(r.proxy.Table(), r.proxy.Ends)
	r.proxy.SetTable(t)
	take()
	r.warnSame(f, t)
	is, err := r.proxy.Snapshot() // wait until all loops use the new table: each loop adopts it before it replies
	if err != nil {
		r.lines.LogOrder(slog.LevelWarn, reloads, "new configuration in force, but not all loops use it yet", "error", err)
		return f, false, nil
	}
	return f, is.Moving, nil
}

// checkMoves returns an error if the configuration f, whose table is t, moves more keys of a pool than
// its max_move allows. The limit of f counts, not that of the configuration in force. So the file says
// by itself whether it can be loaded.
func (r *Instance) checkMoves(f *config.File, t *table.Table) error {
	over := inspect.Excessive(f, r.moves(f, t))
	if over == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: ringside plan shows the moves; to move the keys, use ringside reload --accept", r.watch.path, strings.Join(over, "; "))
}

// moves returns which keys the configuration f, whose table is t, moves to other servers; nil: no pool has a
// limit.
func (r *Instance) moves(f *config.File, t *table.Table) (list []table.Moves) {
	if slices.ContainsFunc(f.Pools, func(p config.Pool) bool { return p.MaxMove < 100 }) {
		list, _ = r.proxy.Table().MovesTo(t, r.proxy.Ends)
	}
	return list
}

// refit compares limits.clients again with the number of files that the process may open,
// if that number has changed (by prlimit).
func (r *Instance) refit() {
	files, known := openFiles()
	if !known || files == r.files || r.proxy.Joins() { // leaveJoined decides when a table replaces the peers' one
		return
	}
	r.files = files
	t, err := r.file.Build()
	if err == nil {
		err = fitClients(r.file, t, r.started.Engine.Loops, r.lines)
	}
	if err != nil {
		r.lines.LogOrder(slog.LevelError, "limits.clients", "limits.clients not adapted to the new limit of open files", "open_files", files, "error", err)
		return
	}
	r.lines.LogOrder(slog.LevelInfo, "limits.clients", "limit of open files changed", "open_files", files, "clients", t.Limits.Clients)
	r.proxy.SetTable(t)
}

// limitMemory sets the memory limit of the Go runtime: 1.25 times limits.memory, plus the
// constant beside. Near this limit the garbage collector works harder, so that the
// process does not need more memory than the example configuration says. GOMEMLIMIT in
// the environment overrides this limit.
func limitMemory(f *config.File) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(f.Limits.Memory + f.Limits.Memory/4 + beside)
	}
}

// beside is the memory in bytes that the Go runtime may use in addition to 1.25 times
// limits.memory. The example configuration says that a container needs 64 MiB in
// addition. Half of that is this constant; the other half is for memory that the Go
// runtime does not count.
const beside = 32 << 20

// poolsEvery is how often this instance asks the servers which pools eject them. Tests
// shorten it.
var poolsEvery = time.Minute

// Serve runs until a signal ends it. After the first SIGTERM or SIGINT, requests in
// flight are completed. A second signal ends Serve at once.
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
	defer r.sources.Stop()
	var later <-chan time.Time  // fires when a delayed reload must be tried again; nil: no reload is delayed
	var joined <-chan time.Time // fires when leaveJoined must be called again
	var relist <-chan time.Time // fires when a delayed change of the servers of sources must be tried again
	for {
		if on := r.file.Watch && r.watch.path != ""; on != looking {
			if looking = on; on {
				looks.Reset(lookEvery)
			} else {
				looks.Stop()
			}
		}
		select {
		case q := <-r.asked:
			r.askers = append(r.askers, q)
			later = r.reread(later != nil)
		case <-later:
			later = r.reread(true)
		case <-r.joined:
			joined = r.leaveJoined()
		case <-joined:
			joined = r.leaveJoined()
		case <-r.sources.Changed:
			relist = r.relist()
		case <-relist:
			relist = r.relist()
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
			if is, err := r.proxy.Bounds(); err == nil { // an error means that a loop hangs, which /healthz reports
				bounds.check(*is, now)
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
				r.lines.LogOrder(slog.LevelWarn, reloads, "reload ignored: the process was started without a configuration file")
			default:
				later = r.reread(later != nil)
			}
		}
	}
}

// End ends the instance at once. Requests in flight get no replies.
func (r *Instance) End() {
	now := make(chan os.Signal)
	close(now)
	r.Stop(now, 0)
}

// oneStop is the time after the first signal in which further signals are ignored. For
// example, timeout(1) sends a signal to the process and then to its process group, which
// includes the process again.
const oneStop = 500 * time.Millisecond

// Stop makes /readyz report that the instance is stopping. For the duration linger, the
// instance still accepts new clients, because load balancers do not notice the stop at
// once. After that, Stop completes the requests in flight, for at most limits.drain.
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
	case done := <-r.handed: // another process has taken over, and new clients connect to it
		r.leave()
		done()
	}
	select {
	case <-r.closed:
	default:
		if r.handover.end() { // another process has the listening sockets, and may still take over
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
	r.proxy.EndLog()
	r.lines.End()
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

// Catch returns a channel that receives the signals that Serve handles: SIGTERM, SIGINT
// and SIGHUP. While Serve is busy, one SIGHUP stands for all, and does not displace the other signals.
func Catch() <-chan os.Signal {
	c, ends, reloads := make(chan os.Signal), make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(reloads, syscall.SIGHUP)
	go func() {
		for {
			select {
			case s := <-ends:
				c <- s
			case s := <-reloads:
				c <- s
			}
		}
	}()
	return c
}
