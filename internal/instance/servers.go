package instance

// This file follows the sources of servers: it puts the servers that they have now in force, in the way
// of a reload.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"ringside/config"
	"ringside/internal/discover"
	"ringside/internal/inspect"
	"ringside/proxy/table"
)

// firstAnswers is how long a start waits for the answers of sources. Without them, the instance starts
// and rejects commands.
const firstAnswers = time.Second

// asker asks the sources of servers. Tests replace it.
var asker = &discover.Asker{}

// firstServers starts to ask the sources of f, and returns f with the servers that they have at the
// time. If it takes longer than wait, or if the servers don't fit the configuration, pools have none.
func firstServers(f *config.File, sources *discover.Watch, wait time.Duration, log *slog.Logger) (*config.File, *table.Table, error) {
	sources.Use(f, true)
	limited, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for _, ended := range sources.First(f) {
		select {
		case <-ended:
		case <-limited.Done():
		}
	}
	if g, settle, err := sources.Fit(f, false, nil); err == nil {
		settle(true)
		f = g
	} else {
		log.Error("the servers that sources have now do not fit the configuration", "error", err)
	}
	for _, pool := range f.Unknown() {
		log.Warn("the servers of a pool are not known: the instance is not ready and rejects commands", "pool", pool, "error", sources.Why(pool))
	}
	t, err := f.Build()
	return f, t, err
}

// load reads the configuration file, with the servers that its sources have now. If it has new sources,
// they are asked first, and the channel pending receives when their first lookups have ended. With
// accept, answers that change too much are accepted. If the configuration comes into force, settle must be
// called.
func (r *Instance) load(accept bool) (f *config.File, settle func(inForce bool), pending <-chan time.Time, err error) {
	if f, err = r.watch.load(); err != nil {
		return nil, nil, nil, err
	}
	r.sources.Use(f, false)
	first := r.sources.First(f)
	for _, ended := range first {
		select {
		case <-ended:
		default:
			all := make(chan time.Time, 1)
			go func() {
				for _, ended := range first {
					<-ended
				}
				all <- time.Now()
			}()
			return nil, nil, all, nil
		}
	}
	excess := r.excess
	if accept {
		excess = nil
	}
	if f, settle, err = r.sources.Fit(f, accept, excess); err != nil {
		return nil, nil, nil, err
	}
	for _, pool := range f.Unknown() {
		if before := r.file.Pool(pool); before == nil || !before.Unknown() { // a pool that has servers does not lose them
			return nil, nil, nil, fmt.Errorf("%s: pools.%s: the servers are not known: %s", r.watch.path, pool, r.sources.Why(pool))
		}
	}
	return f, settle, nil, nil
}

// relist puts the servers that the sources have now in force. While instances may be in different stages
// of the handover of an earlier change, no change is possible. In this case relist returns a channel that
// fires when it must be tried again, with the servers of that time.
func (r *Instance) relist() (later <-chan time.Time) {
	f, settle, err := r.sources.Fit(r.file, false, r.excess)
	switch {
	case err != nil:
		r.adopt(nil, false, err)
		return nil
	case len(config.Changes(r.file, f)) == 0: // at most, a server has another address
		r.moved(f)
		settle(true)
		if r.listRejected { // the servers are again those in force
			r.mu.Lock()
			r.reload.Err, r.listRejected = nil, false
			r.mu.Unlock()
		}
		return nil
	}
	r.moved(r.file.At(f)) // servers that stay may be elsewhere, even if the change of the list is rejected
	if is, err := r.proxy.Snapshot(); err == nil && is.Unsettled > 0 {
		return time.After(is.Unsettled)
	}
	f, moves, err := r.apply(f, true) // Fit has compared the moves with max_move
	r.adopt(f, moves, err)
	settle(err == nil)
	r.listRejected = err != nil
	return nil
}

// excess returns an error for each pool of which the configuration f moves more keys than its max_move allows.
func (r *Instance) excess(f *config.File) map[string]error {
	t, err := f.Build()
	if err != nil {
		return nil // apply reports it
	}
	over := map[string]error{}
	for _, m := range r.moves(f, t) {
		if why := inspect.Excessive(f, []table.Moves{m}); why != nil {
			over[m.Pool] = fmt.Errorf("%s; ringside reload --accept accepts it", why[0])
		}
	}
	return over
}

// moved replaces the configuration in force by f, which differs only in where servers are.
func (r *Instance) moved(f *config.File) {
	r.mu.Lock()
	r.file = f
	r.mu.Unlock()
	r.follow(f)
	r.warnSame(f, r.proxy.Table())
}

// follow makes the driver connect to the servers of f where they are now. Connections to servers that
// are elsewhere now are closed.
func (r *Instance) follow(f *config.File) {
	at := f.Dial()
	r.keepFormer(at)
	before := r.dial.Swap(&at)
	why := ""
	for _, pool := range f.Unknown() {
		why = fmt.Sprintf("the servers of pool %s are not known: %s", pool, r.sources.Why(pool))
	}
	r.unknown.Store(&why)
	if before == nil {
		return
	}
	moved := map[string]bool{}
	var texts []string
	for address, was := range *before {
		if is, ok := at[address]; ok && is != was {
			moved[address] = true
			texts = append(texts, fmt.Sprintf("%s from %s to %s", address, was, is))
		}
	}
	if len(moved) > 0 {
		r.lines.LogLimited(slog.LevelInfo, "", "servers have other addresses", "servers", strings.Join(texts, ", "))
		r.driver.Redial(moved)
	}
}

// warnSame logs which servers of f, whose table is t, are at the address of another one of their pool. Each
// warning is logged once, until it is not true any more. It looks up names in the background.
func (r *Instance) warnSame(f *config.File, t *table.Table) {
	go func() {
		list := inspect.SameServers(context.Background(), t, f.Dial())
		r.mu.Lock()
		defer r.mu.Unlock()
		fresh := slices.DeleteFunc(slices.Clone(list), func(w string) bool { return slices.Contains(r.same, w) })
		if len(fresh) > 0 {
			r.lines.LogOrder(slog.LevelWarn, "", "a pool has a server twice", "warning", f.Hide(strings.Join(fresh, "; ")))
		}
		r.same = list
	}()
}

// keepFormer adds to at where the servers are that pools still use, although a source no longer lists
// them: their instances change to other servers together.
func (r *Instance) keepFormer(at map[string]string) {
	before := r.dial.Load()
	if before == nil {
		return
	}
	for _, p := range r.proxy.Table().Pools {
		servers := p.Servers
		if p.Next != nil {
			servers = slices.Concat(servers, p.Next.Servers)
		}
		for i := range servers {
			address := servers[i].Address
			if _, known := at[address]; p.Resize != table.ResizePlain && !known {
				if was, ok := (*before)[address]; ok {
					at[address] = was
				}
			}
		}
	}
}

// locate returns where to connect to the server with this address in the table.
func (r *Instance) locate(address string) string {
	if all := r.dial.Load(); all != nil {
		if at, ok := (*all)[address]; ok {
			return at
		}
	}
	return address
}

// refused asks the sources of a server again, after no connection to it could be made.
func (r *Instance) refused(address string) {
	r.sources.Refused(func(pool, name string) bool { return config.AddressOf(pool, name) == address })
}

// unready returns an error if the servers of a pool are not known.
func (r *Instance) unready() error {
	if why := r.unknown.Load(); why != nil && *why != "" {
		return fmt.Errorf("%s", *why)
	}
	return nil
}
