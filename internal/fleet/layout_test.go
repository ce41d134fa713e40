package fleet

// The fleet's configuration, and its changes by reloads.

import (
	"cmp"
	"fmt"
	"time"

	"ringside/proxy/health"
	"ringside/proxy/table"
	"ringside/proxy/tags/stamp"
	"ringside/replicate"
	"ringside/ring"
)

// layout is the configuration of the servers, once all proxies have it.
type layout struct {
	edition   int   // number of reloads
	since     int64 // when the last sidecar gets it
	gone      int   // the server that is not configured; -1: all are
	reweighed bool  // a quarter of the keys have another first server, a quarter another second one, and a quarter only other servers
	fewer     bool  // keys have one replica less
	plain     bool  // the pool ejects no server: mode fail_fast without replicas
	renamed   bool  // the pool has another name
	replaced  bool  // all servers are others: see scenario.others
	mixed     bool  // all servers but the first are others, and there is one more: see scenario.others
	aliased   int   // one plus the server that has another name; 0: none
	at        int   // the address of the first server: that of a spare node, counted from 1; 0: its own
	from      int   // one plus the address of the first server in the list of warm_from, as in the field at; 0: there is no warm_from
	unread    bool  // the pool does not read the one from which it fills
	swapped   bool  // the second and the third server have exchanged their names
	spared    spared
}

// spared says which of the servers s0, s1, … are not configured, in addition to layout.gone.
type spared [8]bool

// without returns the list without some servers.
func without(servers ...int) (s spared) {
	for _, i := range servers {
		s[i] = true
	}
	return s
}

// limits are too high to be reached.
var limits = table.Limits{Clients: 100, Key: 250, Line: 64 << 10, Value: 8 << 20, InFlight: 4096,
	Output: 1 << 20, OutputHard: 64 << 20, Memory: 256 << 20, Waiting: 10_000, Tickets: 65_536, Tags: 16, TagKeys: 1000}

// refusedFor is how long a server must refuse connections before it is ejected.
const refusedFor = 150 * time.Millisecond

// reload gives all sidecars another configuration, one after the other.
func (f *fleet) reload(change func(l *layout)) {
	change(&f.layout)
	f.edition++
	f.note("", "RELOAD %+v", f.layout)
	for _, s := range f.sidecars {
		at := f.now + f.upTo(500*milli)
		f.since = max(f.since, at)
		f.at(at, s.reload)
	}
}

// table returns the configuration of sidecars.
func (s *sidecar) table() *table.Table {
	f := s.f
	spare := f.layout.at
	pool := func(name string, from, n, gone int) *table.Pool {
		mixed := f.mixed && from == 0
		if mixed {
			n, gone = n+1, -1
		}
		r := around{n: n, gone: gone, reweighed: f.reweighed || f.features != nil && f.features.reweighed && from == 0}
		if from == 0 {
			r.spared = f.spared
		}
		p := &table.Pool{Name: name, Connections: 1, QueueLimit: 10_000, GetErrors: f.errs,
			Timeouts:     table.Timeouts{Connect: 400 * time.Millisecond, Request: f.request, Deadline: 4 * f.request},
			RetryBackoff: table.Backoff{First: 50 * time.Millisecond, Max: 400 * time.Millisecond},
			Place:        ring.Placement{Hash: hash, Ring: r, Fingerprint: fmt.Sprintf("%+v", r)}}
		for i := range n {
			if i != gone && !r.lacks(i) {
				name := fmt.Sprintf("s%d", from+i)
				if mixed && i > 0 {
					name = fmt.Sprintf("s%d", f.servers+i-1)
				}
				m := table.Target{Name: name, Network: "tcp", Address: name, Weight: 1, Host: name}
				if from+i == 0 && spare > 0 {
					m.Address = f.nodes[f.servers+spare-1].name
				}
				if f.swapped && (i == 1 || i == 2) {
					m.Address = f.nodes[3-i].name
				}
				if f.aliased == from+i+1 {
					m.Name = "alias"
				}
				p.Servers = append(p.Servers, m)
			}
		}
		p.Text = fmt.Appendf(nil, "%+v %+v", r, p.Servers)
		f.lists[string(p.Text)] = p.List()
		return p
	}
	if f.features != nil {
		return f.featured(pool)
	}
	first, former := 0, f.servers
	if f.replaced {
		first, former = former, first
	}
	p := pool("main", first, f.servers, f.gone)
	if f.others && f.edition > 0 && !f.ablate.former {
		lacks := -1
		if f.wrongFormer {
			lacks = 1
		}
		p.From = pool("main", former, f.servers, lacks).List()
		p.Former = cmp.Or(f.formerName, "former")
	}
	if f.from > 0 {
		spare = f.from - 1
		p.From, p.Former = pool("main", first, f.servers, f.gone).List(), "former"
	}
	p.Failover = table.Failover{Mode: f.mode, SubstituteTTL: 10 * time.Minute, Settings: health.Settings{
		Strict: f.strict, OnRejoin: f.rejoin, EjectAfter: health.EjectAfter{Refused: min(refusedFor, f.eject), Silent: f.eject, Restart: max(f.restart, f.eject)},
		Ping: 250 * time.Millisecond, Lease: lease, Request: f.request, AfterFailures: 3}}
	p.Resize, p.ResizeRate, p.ResizeUsual = f.resize, f.rate, f.usual
	if !f.ablate.items {
		p.ReadList = f.readList(p)
	}
	if f.fill {
		p.Fill = &table.Fill{From: pool("source", f.servers, f.servers, -1), Rate: cmp.Or(f.rate, 1_000_000), Remember: time.Hour}
		if f.unread {
			p.Fill.Rate = 0
		}
	}
	if f.strict {
		p.Failover.Wait = p.Timeouts.Deadline
	}
	if f.unlike && s.id == f.scenario.sidecars-1 {
		p.Failover.Strict, p.Failover.Ping = false, 50*time.Millisecond
	}
	if f.rash && s.id == f.scenario.sidecars-1 {
		p.Resize = table.ResizePlain
	}
	if f.renamed {
		p.Name = "cache"
	}
	if f.plain {
		p.Failover.Mode, p.Failover.Strict = table.FailFast, false
	}
	t := &table.Table{Limits: limits, Pools: []*table.Pool{p}}
	if f.gutter > 0 && !f.plain {
		g := pool("spare", f.servers, f.gutter, -1)
		p.Failover.Gutter = g
		t.Pools = append(t.Pools, g)
	}
	if f.beside {
		b := pool("beside", 0, f.servers, f.gone)
		b.Failover = p.Failover
		b.Failover.Mode = table.Rehash
		t.Pools = append(t.Pools, b)
	}
	if f.rebuilt {
		p.Without = func(out []bool) (ring.Ring, error) {
			r := around{n: len(out), live: []int{}}
			for i, o := range out {
				if !o {
					r.live = append(r.live, i)
				}
			}
			return r, nil
		}
	}
	route := table.Route{Pool: p, Copies: f.copies}
	if f.fewer {
		route.Copies.Copies--
	}
	if f.plain {
		route.Copies = replicate.Policy{}
	}
	if f.herd != nil {
		route.Guard = &f.herd.GuardSettings
		if f.herd.tagged {
			route.Tags = &table.TagSettings{Rule: stamp.Rule{Namespace: stamp.In("")}, Suffix: ";tags="}
			if f.herd.prefixed {
				route.Tags.Prefix = []byte(prefixTag)
			}
			t.TagCommand = "tag:"
		}
		t.Limits.Tickets = cmp.Or(f.herd.tickets, limits.Tickets)
	}
	if f.feature != nil {
		f.feature(&route)
	}
	t.Listeners = []table.Listener{{Network: "tcp", Address: "here", Routes: []table.Route{route}}}
	return t
}

// readList returns the ReadList of the pool p: it finds the list of any edition by its text.
func (f *fleet) readList(p *table.Pool) func(text []byte) (*table.List, error) {
	return func(text []byte) (*table.List, error) {
		l := f.lists[string(text)]
		if l == nil {
			return nil, fmt.Errorf("no list: %q", text)
		}
		is := *l
		is.Without = p.Without
		return &is, nil
	}
}

// bound returns how long a request may take: its deadline, plus some time for a task
// that sent its last request just before the deadline.
func (f *fleet) bound() int64 { return 5*int64(f.request) + 100*milli }

// around assigns a key to server h mod n, and its replicas and substitutes to the next
// servers. It skips the server `gone`, which is not configured. If the ring was
// rebuilt, it assigns a key to the live server with the index h mod the number of live
// servers.
type around struct {
	n         int
	live      []int
	gone      int // -1: none
	reweighed bool
	spared    spared
}

// spares returns how many of the first n servers are spared.
func (r around) spares(n int) (all int) {
	for _, is := range r.spared[:min(n, len(r.spared))] {
		if is {
			all++
		}
	}
	return all
}

// lacks reports whether server i is spared.
func (r around) lacks(i int) bool { return i < len(r.spared) && r.spared[i] }

func (r around) Len() int {
	if r.live == nil && r.gone >= 0 {
		return r.n - 1
	}
	return r.n - r.spares(r.n)
}

func (r around) At(_ []byte, h uint64, try int) int {
	if r.live != nil {
		if try < len(r.live) {
			return r.live[(h+uint64(try))%uint64(len(r.live))]
		}
		return -1
	}
	for i := range r.n {
		step := i
		switch h / uint64(r.n) % 4 {
		case 0:
			if r.reweighed && (i == 1 || i == 2) {
				step = 3 - i
			}
		case 1:
			if r.reweighed {
				step = (i + 2) % r.n
			}
		case 2:
			if r.reweighed {
				step = (i + 1) % r.n
			}
		}
		at := int((h + uint64(step)) % uint64(r.n))
		switch {
		case at == r.gone, r.lacks(at):
		case try > 0:
			try--
		case r.gone >= 0 && at > r.gone:
			return at - r.spares(at) - 1
		default:
			return at - r.spares(at)
		}
	}
	return -1
}
