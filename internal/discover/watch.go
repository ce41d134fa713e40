package discover

// This file asks the sources of a running instance again and again.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"ringside/config"
	"ringside/proxy/admin"
	"ringside/proxy/link"
	"ringside/proxy/live"
	"ringside/proxy/serverlist"
)

const (
	askTime  = 10 * time.Second // time limit of a lookup
	watchGap = 5 * time.Second  // least time between two watches of the Kubernetes API
)

// Tests shorten these times.
var (
	leastGap  = time.Second // least time between two lookups of a source
	fileEvery = time.Second // time between two looks at the modification time of a file
)

// Watch keeps the servers of all sources of an instance.
type Watch struct {
	Changed chan struct{} // receives after the servers of a source have changed, or have become known

	asker *Asker
	log   link.LimitedLog
	mu    sync.Mutex
	feeds []*feed // in the order of the configuration

	inherited []admin.SavedSource // the lists with which the first sources begin
}

// feed is one source of one pool.
type feed struct {
	*Watch
	pool    string
	text    serverlist.Source
	news    chan struct{} // receives if the source says that its servers have changed
	refused chan struct{} // receives if a server of the source has refused a connection
	tried   chan struct{} // closed when the first lookup has ended, or the source is not needed any more
	once    sync.Once     // closes tried
	stop    context.CancelFunc
	memory  *memory       // only the current lookup uses it
	limit   time.Duration // time limit of a lookup

	// Protected by mu:
	source  config.Source // with the settings that are in force
	list    serverlist.List
	version uint64                      // number of changes of list
	good    []serverlist.Server         // the servers of the source that are part of the configuration in force; nil: none are
	unfit   string                      // why a later list did not fit the configuration; empty: the last one did, or Fit was not called yet
	unfitIs serverlist.State            // the state because of unfit
	misfit  string                      // why the first list does not fit the file of the last Fit, so that its pool has no servers; empty: it fits
	start   *serverlist.List            // the list of the process from which this one takes over, until it is in force; nil: none
	number  uint64                      // of elasticache: the number of the list that counts
	asking  bool                        // a lookup is running
	at      time.Time                   // when the last lookup that gave an answer ended; the zero Time: none did
	lookups map[serverlist.State]uint64 // number of lookups since the start, by the state after each
}

// NewWatch returns a Watch without sources. log receives warnings about them.
func NewWatch(a *Asker, log *slog.Logger) *Watch {
	return &Watch{Changed: make(chan struct{}, 1), asker: a, log: link.LimitedLog{Log: log}}
}

// Use starts to ask the sources of the pools of f that are not asked yet, and applies the settings of the
// others. With only, it stops to ask all other sources.
func (w *Watch) Use(f *config.File, only bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var feeds []*feed
	for i := range f.Pools {
		for _, s := range f.Pools[i].Sources {
			one := w.find(f.Pools[i].Name, s.Text)
			if one == nil {
				ctx, stop := context.WithCancel(context.Background())
				one = &feed{Watch: w, pool: f.Pools[i].Name, text: s.Source, source: s, news: make(chan struct{}, 1), refused: make(chan struct{}, 1), tried: make(chan struct{}), stop: stop, memory: newMemory(s.Keep), limit: askTime, lookups: map[serverlist.State]uint64{}}
				one.inherit()
				go one.run(ctx)
			} else if only {
				one.source = s
			}
			feeds = append(feeds, one)
		}
	}
	for _, old := range w.feeds {
		switch {
		case slices.Contains(feeds, old):
		case only:
			old.stop()
		default:
			feeds = append(feeds, old)
		}
	}
	w.feeds, w.inherited = feeds, nil
}

// Save returns the lists of all sources, which the next process continues.
func (w *Watch) Save() (list []admin.SavedSource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.feeds {
		l := f.list
		if len(f.good) > 0 && !slices.Equal(serversOf(&l), f.good) { // it is not in force yet
			l.Revert(f.good, errors.New("not in force yet"), false)
		}
		list = append(list, admin.SavedSource{Pool: f.pool, Source: f.text.Text, List: l.Save(), Version: f.number})
	}
	return list
}

// Inherit makes the sources that are used next begin with these lists, which are those of the process from
// which this one takes over. It must be called before Use.
func (w *Watch) Inherit(list []admin.SavedSource) { w.inherited = list }

// inherit makes a new source begin with the list that it had in another process. Its servers are known, so
// its first answer is not waited for, and is compared with them. The caller holds mu.
func (f *feed) inherit() {
	for _, s := range f.inherited {
		if s.Pool == f.pool && s.Source == f.text.Text && len(s.List.Servers) > 0 {
			f.list.Restore(s.List)
			start := f.list
			f.start, f.number, f.memory.version.Number = &start, s.Version, s.Version
			f.once.Do(func() { close(f.tried) })
		}
	}
}

// Stop stops all lookups.
func (w *Watch) Stop() {
	w.Use(&config.File{}, true)
	w.log.End()
}

// find returns the feed of a source, or nil. The caller holds mu.
func (w *Watch) find(pool, source string) *feed {
	for _, f := range w.feeds {
		if f.pool == pool && f.source.Text == source {
			return f
		}
	}
	return nil
}

// Fit returns f with the servers that its sources have now. If they do not fit, such as two sources
// with one name for different servers, the sources at fault keep the servers that they had before. So a
// wrong source does not affect others. The error is that of f without servers of any source at fault.
// With accept, answers that are held count.
//
// excess, which may be nil, returns an error for each pool that moves too many keys to come into force. The
// sources of such a pool keep their servers, too, and their answers are held.
//
// Fit itself changes nothing. If the text of the result is that of the configuration in force, or comes into
// force, the caller must call settle, with whether the servers of the result are in force.
func (w *Watch) Fit(f *config.File, accept bool, excess func(*config.File) map[string]error) (g *config.File, settle func(inForce bool), err error) {
	w.mu.Lock()
	var all []*fitting
	for _, one := range w.feeds {
		if p := f.Pool(one.pool); p == nil || !slices.ContainsFunc(p.Sources, func(s config.Source) bool { return s.Text == one.text.Text }) {
			continue // only a file that was rejected has it, or one that is not in force yet
		}
		s := &fitting{feed: one, list: one.list, good: one.good, version: one.version}
		if one.start != nil {
			s.list = *one.start
		}
		s.accepted = accept && s.list.Accept(time.Now(), one.source.Settings)
		all = append(all, s)
	}
	w.mu.Unlock()
	fresh := len(all) // the sources from this index on have the servers that they had before
	with := func() (*config.File, error) {
		return f.With(func(pool, source string) ([]serverlist.Server, bool) {
			for i, s := range all {
				switch {
				case s.pool != pool || s.text.Text != source:
				case i < fresh && s.unfit == nil:
					return s.list.Servers()
				default:
					return s.good, len(s.good) > 0
				}
			}
			return nil, false
		})
	}
	for again := true; again; {
		if g, err = with(); err != nil { // find the sources at fault: add the new servers of one source after the other
			for fresh = 0; fresh < len(all); {
				last := all[fresh]
				fresh++
				if last.unfit != nil {
					continue
				}
				if _, last.unfit = with(); last.unfit != nil && slices.Equal(serversOf(&last.list), last.good) {
					last.unfit = nil // something else is wrong
				}
			}
			if g, err = with(); err != nil {
				return nil, nil, err
			}
		}
		again = false
		if excess == nil {
			break
		}
		over := excess(g)
		for _, s := range all {
			again = s.hold(over[s.pool]) || again
		}
	}
	w.mu.Lock()
	for _, s := range all {
		if s.misfit = ""; s.unfit != nil && len(s.good) == 0 {
			s.misfit = s.unfit.Error()
		}
	}
	w.mu.Unlock()
	return g, func(inForce bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, s := range all {
			s.settle(inForce)
		}
	}, nil
}

// fitting is a source while Fit looks whether its servers fit.
type fitting struct {
	*feed
	list     serverlist.List
	good     []serverlist.Server
	version  uint64
	accepted bool  // list is an answer that was held
	unfit    error // why list does not fit
	held     bool  // list may be accepted, although it does not fit
}

// hold makes a source keep the servers that it had, at their present addresses, if why says that its pool moves
// too many keys. It reports whether this changes anything.
func (s *fitting) hold(why error) (changed bool) {
	if why == nil || s.unfit != nil || len(s.good) == 0 {
		return false
	}
	now, good := map[string]string{}, slices.Clone(s.good)
	for _, is := range serversOf(&s.list) {
		now[is.Name] = is.Address
	}
	for i := range good {
		good[i].Address = cmp.Or(now[good[i].Name], good[i].Address)
	}
	if slices.Equal(serversOf(&s.list), good) {
		return false
	}
	s.good, s.unfit, s.held = good, why, true
	return true
}

// settle records the result of Fit. The caller holds mu.
func (s *fitting) settle(inForce bool) {
	f := s.feed
	changed := f.version != s.version // it has changed since; Changed has a message
	if f.start != nil && inForce {
		f.start = nil
		poke(f.Changed) // the source may have answered since
	}
	if s.accepted && inForce && f.list.Accept(time.Now(), f.source.Settings) {
		f.version++
		f.log.LogOrder(slog.LevelInfo, f.subject(), "operator accepted the servers of a source", "pool", f.pool, "source", f.text.Text)
		poke(f.Changed) // the source may have answered since
	}
	switch {
	case s.unfit == nil:
		if inForce {
			f.good = serversOf(&s.list)
		}
		if f.unfit != "" && !changed && f.list.State == serverlist.Sound {
			f.answersAgain()
		}
	case changed:
	default:
		f.list.Revert(s.good, s.unfit, s.held)
		if inForce {
			f.good = s.good
		}
		if f.unfit != s.unfit.Error() { // else the log has it already
			f.unfit, f.unfitIs = s.unfit.Error(), f.list.State
			f.log.LogOrder(slog.LevelWarn, f.subject(), "the servers of a source stay as they are", "pool", f.pool, "source", f.text.Text, "servers", len(s.good), "error", s.unfit)
		}
	}
}

func serversOf(l *serverlist.List) []serverlist.Server {
	servers, _ := l.Servers()
	return servers
}

// subject returns what lines in the log about the source are about.
func (f *feed) subject() string { return f.pool + " " + f.text.Text }

// answersAgain logs that the servers of the source are in force again. The caller holds mu.
func (f *feed) answersAgain() {
	f.unfit = ""
	f.log.LogOrder(slog.LevelInfo, f.subject(), "a source of servers answers again", "pool", f.pool, "source", f.text.Text)
}

// First returns channels that are closed when the first lookup of each source of f has ended. Use must
// have been called with f.
func (w *Watch) First(f *config.File) (ended []<-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range f.Pools {
		for _, s := range f.Pools[i].Sources {
			if one := w.find(f.Pools[i].Name, s.Text); one != nil {
				ended = append(ended, one.tried)
			}
		}
	}
	return ended
}

// Why returns why the servers of a pool are not known; empty: they are.
func (w *Watch) Why(pool string) string {
	for _, s := range w.States() {
		if s.Pool == pool && s.Servers == 0 && s.Problem != "" {
			return fmt.Sprintf("%s: %s", s.Source, s.Problem)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.feeds {
		if f.pool == pool && f.misfit != "" {
			return fmt.Sprintf("%s: %s", f.source.Text, f.misfit)
		}
	}
	return ""
}

// Lists returns the servers of all sources.
func (w *Watch) Lists() (list []admin.SourceServers) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.feeds {
		servers, _ := f.list.Servers()
		_, problem := f.state()
		list = append(list, admin.SourceServers{Pool: f.pool, Source: f.source.Text, MaxChange: f.source.MaxChange, Servers: servers, Problem: cmp.Or(problem, f.misfit)})
	}
	return list
}

// States describes all sources.
func (w *Watch) States() (list []live.Source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.feeds {
		s := live.Source{Pool: f.pool, Source: f.source.Text, Servers: len(f.good), At: f.at, Succeeded: f.lookups[serverlist.Sound], Failed: f.lookups[serverlist.Failing], Held: f.lookups[serverlist.Held]}
		is, problem := f.state()
		s.State, s.Problem = is.String(), problem
		s.Added, s.Removed = f.list.Held()
		if is == serverlist.Unasked {
			s.Problem = "it has not answered yet"
		}
		list = append(list, s)
	}
	return list
}

// state returns the state of the source, and the problem of its last answer. Until it is known whether an answer
// fits after one that did not, the state is that of the earlier one. The caller holds mu.
func (f *feed) state() (serverlist.State, string) {
	if f.unfit != "" && f.list.State == serverlist.Sound {
		return f.unfitIs, f.unfit
	}
	return f.list.State, f.list.Problem
}

// Refused reports that no connection to a server could be made. match reports whether the server of a
// pool with the given name is that server. The sources that have it are asked at once.
func (w *Watch) Refused(match func(pool, name string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.feeds {
		servers, _ := f.list.Servers()
		if slices.ContainsFunc(servers, func(s serverlist.Server) bool { return match(f.pool, s.Name) }) {
			poke(f.refused)
		}
	}
}

// poke sends to c unless a message waits there already.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run asks the source until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.once.Do(func() { close(f.tried) })
	switch f.text.Scheme {
	case "file":
		go f.watchFile(ctx)
	case "k8s":
		go f.watchEndpoints(ctx)
	}
	gap := leastGap // least time from a lookup to one that a refused connection causes
	for {
		changed := f.lookUp(ctx)
		ended := time.Now()
		due, every := f.next(ended)
		refused := false
		if changed {
			gap = leastGap
		}
		for wait := time.NewTimer(time.Until(due)); due.After(time.Now()); wait.Reset(time.Until(due)) {
			select {
			case <-ctx.Done():
				return
			case <-wait.C:
			case <-f.news:
				due = earlier(due, ended.Add(leastGap/4))
			case <-f.refused:
				due, refused = earlier(due, ended.Add(gap)), true
			}
		}
		gap = nextGap(gap, every, refused)
		if ctx.Err() != nil {
			return
		}
	}
}

// nextGap returns the gap after a lookup that came the time gap or more after the one before. refused is
// set if a refused connection has caused it. While nothing changes, the gap doubles up to the interval of
// the source. It is never less than leastGap, so that servers that refuse connections cause at most one
// lookup in that time.
func nextGap(gap, every time.Duration, refused bool) time.Duration {
	if !refused {
		return leastGap
	}
	return min(2*gap, max(every, leastGap))
}

// next returns when the next lookup is due after one that has ended, and the interval of the source.
func (f *feed) next(ended time.Time) (due time.Time, every time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	due = ended.Add(f.source.Every)
	if _, known := f.list.Servers(); !known { // the pool has no servers, so do not wait that long
		due = earlier(due, ended.Add(leastGap<<min(f.lookups[serverlist.Failing], 6)/2))
	}
	if next := f.list.Next(f.source.Settings); next.After(ended) { // a time in the past has waited for an answer, so it causes no lookup
		due = earlier(due, next)
	}
	if least := ended.Add(leastGap); due.Before(least) {
		due = least
	}
	return due, f.source.Every
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// answer is the result of a lookup.
type answer struct {
	servers []serverlist.Server
	err     error
}

// lookUp asks the source once, and takes its answer. It reports whether the servers have changed.
func (f *feed) lookUp(ctx context.Context) (changed bool) {
	f.mu.Lock()
	source := f.source
	busy := f.asking
	f.asking = true
	f.mu.Unlock()
	got := answer{err: fmt.Errorf("no answer within %v", f.limit)}
	if !busy {
		f.memory.keep = source.Keep
		came := make(chan answer, 1)
		limited, cancel := context.WithTimeout(ctx, f.limit)
		defer cancel()
		go func() {
			var a answer
			a.servers, a.err = f.asker.ask(limited, source.Source, f.memory)
			f.mu.Lock()
			f.asking, f.number = false, f.memory.version.Number
			f.mu.Unlock()
			came <- a
		}()
		select {
		case got = <-came:
			if errors.Is(got.err, context.DeadlineExceeded) {
				got.err = fmt.Errorf("no answer within %v", f.limit)
			}
		case <-limited.Done():
		}
	}
	if ctx.Err() != nil {
		return false
	}
	return f.take(time.Now(), got)
}

// take takes the answer of a lookup.
func (f *feed) take(now time.Time, a answer) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var warn string
	before, first := f.list.State, len(f.lookups) == 0
	if a.err != nil {
		warn = f.list.Fail(a.err)
	} else {
		changed, warn = f.list.Answer(now, a.servers, f.source.Settings)
	}
	switch is := f.list.State; {
	case is == serverlist.Failing:
	case is == serverlist.Sound && before != serverlist.Unasked && before != serverlist.Sound && (f.unfit == "" || slices.Equal(serversOf(&f.list), f.good)):
		f.answersAgain()
		f.at = now
	default:
		f.at = now
	}
	is, _ := f.state()
	f.lookups[is]++
	if warn != "" {
		servers, _ := f.list.Servers()
		f.log.LogOrder(slog.LevelWarn, f.subject(), "the servers of a source stay as they are", "pool", f.pool, "source", f.source.Text, "servers", len(servers), "error", warn)
	}
	if f.list.Early > 0 {
		f.log.LogOrder(slog.LevelWarn, f.subject(), "servers that a source no longer has are removed before keep ends: too many would be in use", "pool", f.pool, "source", f.source.Text, "removed", f.list.Early, "most", serverlist.MostServers)
		f.list.Early = 0
	}
	f.once.Do(func() { close(f.tried) })
	if changed {
		f.version++
	}
	if changed || first {
		poke(f.Changed)
	}
	return changed
}

// watchFile asks again when the file of the source has changed, and then has stayed unchanged until the
// next look, because it could be read while it is being written.
func (f *feed) watchFile(ctx context.Context) {
	read, _ := os.Stat(f.text.Path) // the state of the file when it was read; nil: it did not exist
	for before := read; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(fileEvery):
		}
		is, _ := os.Stat(f.text.Path)
		if still := sameFile(is, before); still && !sameFile(is, read) {
			read = is
			poke(f.news)
		}
		before = is
	}
}

// sameFile reports whether a file was not changed between the states a and b.
func sameFile(a, b fs.FileInfo) bool {
	return a == nil && b == nil || a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// watchEndpoints asks again when the endpoints of the source have changed.
func (f *feed) watchEndpoints(ctx context.Context) {
	<-f.tried
	for ctx.Err() == nil {
		f.mu.Lock()
		resume := ""
		if !f.asking {
			resume = f.memory.resume
		}
		f.mu.Unlock()
		if c, err := f.asker.cluster(); err == nil && resume != "" {
			c.watch(ctx, f.text, resume, func() { poke(f.news) })
			poke(f.news) // a change between two watches would else be seen at the next interval only
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchGap):
		}
	}
}
