package table

// This file lets a pool keep its servers for a while after a reload, until all instances have the new
// ones.
//
// The setting warm_from is for instances that start. An instance that reloads a file knows the list in force and
// the next one. An instance that starts knows only the list of its file: if that has no server in common with the
// list in force, it finds no view record, and would put its own list in force at once, while its peers still use
// theirs. With warm_from, the file has both lists (Pool.From and the pool's own). The instance then begins like one
// that had the former list and has just reloaded the file. So all rules of package health/resize hold without a
// change, also if it starts while keys move. If the view records say that the new list is in force, it uses that
// at once. If there are no view records, the former list is in force, and its keys move.
//
// Instances recognize each other by the name of the pool. So the pool keeps its name, and the former list
// gets another one, by which no instance uses servers. Before keys move, package replication checks that
// the former servers have no view record with that name.

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"ringside/ring"
)

// ResizeMode is what happens to keys with one copy when a reload changes which server owns them.
type ResizeMode uint8

// The modes.
const (
	ResizePlain ResizeMode = iota // each instance uses the new servers at once; old values can be read again after a further change
	ResizeFlush                   // all instances change together, and servers that gain keys are flushed before: package resize
	ResizeWarm                    // all instances change together, and the values of keys that move are kept
)

func (m ResizeMode) String() string { return [...]string{"plain", "flush", "warm"}[m] }

// MoveRate returns how many keys each old owner loses at most in a second in mode ResizeWarm.
func (p *Pool) MoveRate() int { return cmp.Or(p.ResizeRate, defaultMoveRate) }

const defaultMoveRate = 5000

// List is what decides which server owns a key of a pool.
type List struct {
	Servers []Target
	Place   ring.Placement
	Without func(out []bool) (ring.Ring, error) // as in Pool
	Text    []byte                              // as in Pool
	Learned bool                                // as in Pool
}

// List returns the list that p uses.
func (p *Pool) List() *List { return &List{p.Servers, p.Place, p.Without, p.Text, p.Learned} }

// Begin makes the pools of t use the lists From, if they have any, until all instances change to the lists of
// the configuration.
func (t *Table) Begin() {
	for _, p := range t.Pools {
		p.begin()
	}
}

func (p *Pool) begin() {
	if wish := p.List(); p.From != nil && p.Next == nil && p.Resize == ResizeWarm && !p.Unknown && p.From.Print() != wish.Print() {
		p.use(p.From)
		p.Next, p.ResizeLater = wish, p.Resize
	}
}

func (p *Pool) use(l *List) {
	p.Servers, p.Place, p.Without, p.Text, p.Learned = l.Servers, l.Place, l.Without, l.Text, l.Learned
}

// Texts returns the texts of the lists of p by their hashes.
func (p *Pool) Texts() map[uint32][]byte {
	texts := map[uint32][]byte{}
	for _, l := range []*List{p.List(), p.Next, p.Later} {
		if l != nil && l.Text != nil {
			texts[l.Print()] = l.Text
		}
	}
	return texts
}

// IsLearned reports whether no list of the configuration has the server t, but a list that this process has learned.
func (p *Pool) IsLearned(t Target) bool {
	return (p.Learned || p.Next != nil && p.Next.Learned) && !slices.ContainsFunc(p.Required().Servers, t.SameAddress)
}

// learn makes p serve by the lists of its peers, which this process has learned: the list in force and, while keys move, the
// next one. A list is nil if p has it, or if there is none. The list of the configuration follows. turned says that
// the keys move back, so the peers had the next list first.
func (p *Pool) learn(list, next *List, turned bool) {
	wish := p.Required()
	from, to := cmp.Or(list, p.List()), cmp.Or(next, wish)
	if turned {
		from, to = to, from
	}
	p.use(from)
	p.ResizeLater, p.Next, p.Later = p.Resize, to, nil
	if to.Print() != wish.Print() {
		p.Later = wish
	}
}

// Joining returns the servers that only the list Next of p has.
func (p *Pool) Joining() []Target { return p.newcomers(p.Next) }

// Newcomers returns the servers of Joining, and then those that only the list Later of p has.
func (p *Pool) Newcomers() []Target { return p.newcomers(p.Next, p.Later) }

// newcomers returns the servers of lists that p does not use. A list may be nil.
func (p *Pool) newcomers(lists ...*List) (list []Target) {
	for _, l := range lists {
		if l == nil {
			continue
		}
		for _, t := range l.Servers {
			if !slices.ContainsFunc(p.Servers, t.SameAddress) && !slices.ContainsFunc(list, t.SameAddress) {
				list = append(list, t)
			}
		}
	}
	return list
}

// Print returns a hash by which instances compare their lists. It is not 0, and below 1<<30, so that
// a view record of older releases can contain it.
func (l *List) Print() uint32 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", l.Place.Fingerprint)
	for i := range l.Servers {
		fmt.Fprintf(h, " %q %q", l.Servers[i].Name, l.Servers[i].Network+" "+l.Servers[i].Address)
	}
	return 1 + uint32(h.Sum64()%(1<<30-1))
}

// Successor returns p as it is by its list Next, which must not be nil. Keys that move are served by both. The list
// Later has no influence, even if it will follow at once.
func (p *Pool) Successor() *Pool {
	next := *p
	next.use(p.Next)
	return &next
}

// follow makes the list Later of p its list Next. The mode that the configuration requires then applies, but ResizePlain not
// before p is at its last list: without that, each instance would begin to use it at another time.
func (p *Pool) follow() {
	if p.Next, p.Later = p.Later, nil; p.Next != nil && p.Next.Print() == p.List().Print() {
		p.Next = nil
	}
	if p.Next == nil || p.ResizeLater != ResizePlain {
		p.Resize = p.ResizeLater
	}
}

// Prints returns the hashes of the list that p uses, and of the list to which it changes. Both
// are 0 if the pool does not coordinate changes of its servers.
func (p *Pool) Prints() (mine, wish uint32) {
	if p.Resize == ResizePlain || p.Unknown {
		return 0, 0
	}
	mine = p.List().Print()
	if p.Next != nil {
		return mine, p.Next.Print()
	}
	return mine, mine
}

// Resizes says, for each pool that old also has with other servers or another placement, what happens to
// its keys with one copy if t replaces old. If the pool has the same ones and is changing to them, Resizes says so.
// ends is as in MovesTo.
func (t *Table) Resizes(old *Table, ends func(*Pool) bool) (list []string) {
	for _, p := range t.Pools {
		was := old.Pool(p.Name)
		also := ""
		if was != nil && was.Next != nil {
			also = "; if keys of an earlier change move already, that change ends first"
		}
		switch {
		case was == nil || p.Unknown || was.Unknown:
		case p.Required().Print() == was.Required().Print():
			switch {
			case was.Next != nil && p.Resize == ResizePlain:
				list = append(list, fmt.Sprintf("pool %s: if keys move already, the change of its servers ends first, and mode plain applies then; otherwise keys with one copy move at once and miss", p.Name))
			case was.Next != nil:
				list = append(list, fmt.Sprintf("pool %s: the change of its servers has not ended; ringside server list shows its progress", p.Name))
			}
		case p.Resize != ResizePlain && was.Next != nil && p.Required().Print() == was.List().Print() && ends(was):
			list = append(list, fmt.Sprintf("pool %s: the change of its servers is about to end; when it has ended, the keys move back in a further change, when all instances have this configuration", p.Name))
		case p.Resize != ResizePlain && was.Next != nil && p.Required().Print() == was.List().Print():
			list = append(list, fmt.Sprintf("pool %s: the change of its servers is taken back; keys that have moved already move back when all instances have this configuration", p.Name))
		case p.Resize != ResizePlain && was.Resize != ResizePlain && p.Resize == ResizeWarm:
			list = append(list, fmt.Sprintf("pool %s: keys move with their values when all instances have this configuration%s", p.Name, also))
		case p.Resize != ResizePlain && was.Resize != ResizePlain:
			list = append(list, fmt.Sprintf("pool %s: keys move when all instances have this configuration, after the servers that gain keys are flushed%s", p.Name, also))
		default:
			if also = ""; was.Resize != ResizePlain && was.Next != nil {
				also = "; if keys of an earlier change move already, that change ends first, this one is made in the same mode, and mode plain applies then"
			}
			if p.Fill == nil {
				also = " (resize: {mode: warm} prevents that)" + also
			}
			list = append(list, fmt.Sprintf("pool %s: keys with one copy move at once and miss; their old values stay on the former servers, and a later change can bring them back%s", p.Name, also))
		}
	}
	return list
}

// Required returns the list that the configuration of p requires.
func (p *Pool) Required() *List {
	switch {
	case p.Joins != nil:
		return p.Joins
	case p.Later != nil:
		return p.Later
	case p.Next != nil:
		return p.Next
	}
	return p.List()
}

// Hold makes the pools of t keep the servers that they have in old, if a reload changes them and the
// pool's mode requires that instances change together. state returns whether a pool of old still serves
// by its own list, and not by that of its peers (holds), whether its keys move to the list Next already
// (moving), and whether a peer may just begin that (begins). While keys move, ResizePlain is not in force either.
// A pool that does not serve by its list begins with the list From, which may be the one in force.
func (t *Table) Hold(old *Table, state func(*Pool) (holds, moving, begins bool)) {
	for _, p := range t.Pools {
		was := old.Pool(p.Name)
		if was == nil || was.Resize == ResizePlain || was.Unknown || was.Copied(old) {
			p.begin()
			continue
		}
		if p.Unknown || p.Copied(t) {
			continue
		}
		holds, moving, begins := state(was)
		next, before := p.List(), was.List()
		p.ResizeLater = p.Resize
		switch {
		case !holds || p.Resize == ResizePlain && !moving:
			p.begin()
		case moving && was.Next != nil, begins && was.Next != nil && was.Next.Print() != next.Print():
			p.use(before)
			p.Resize = was.Resize
			if p.Next = was.Next; p.Next.Print() != next.Print() {
				p.Later = next
			}
		case before.Print() != next.Print():
			p.use(before)
			p.Next = next
		}
	}
}

// Advance returns a copy of t in which pools use the list to which they change (due), or change to the list
// Later instead (drops). It returns nil if there is no such pool.
func (t *Table) Advance(state func(*Pool) (due, drops bool)) *Table {
	return t.change(func(p, is *Pool) bool {
		switch due, drops := state(p); {
		case p.Next != nil && due:
			is.use(p.Next)
			is.follow()
		case p.Later != nil && drops:
			is.follow()
		default:
			return false
		}
		return true
	})
}

// Learn returns a copy of t in which the pool p serves by the lists of its peers, which this process has learned: see Pool.learn. It
// returns nil if p is not a pool of t.
func (t *Table) Learn(p *Pool, list, next *List, turned bool) *Table {
	return t.change(func(o, is *Pool) bool {
		if o == p {
			is.learn(list, next, turned)
		}
		return o == p
	})
}

// Join returns a copy of t in which the pool p, which has replicated keys, uses a list of its peers. Replicated keys move to the servers of that
// list, and this process was started with a further one. It moves these keys like its peers, and uses its own list after a
// reload, which must wait as usual. Join returns nil if p is not a pool of t.
func (t *Table) Join(p *Pool, list *List) *Table {
	return t.change(func(o, is *Pool) bool {
		if o == p {
			*is = *p.By(list)
			is.Joins, is.Learned = p.Required(), true
		}
		return o == p
	})
}

// By returns p with another list. The text of a list does not have all properties of a server, such as its zone: those that p has are kept.
func (p *Pool) By(list *List) *Pool {
	is := *p
	is.use(list)
	is.Servers = slices.Clone(list.Servers)
	for i, m := range is.Servers {
		if j := slices.IndexFunc(p.Servers, func(o Target) bool { return o.Network == m.Network && o.Address == m.Address }); j >= 0 {
			is.Servers[i] = p.Servers[j]
			is.Servers[i].Name, is.Servers[i].Weight = m.Name, m.Weight
		}
	}
	return &is
}

// change returns a copy of t in which the function to has changed copies of pools (is). It returns nil if it has changed none.
func (t *Table) change(to func(p, is *Pool) bool) *Table {
	next, any := *t, false
	pools := map[*Pool]*Pool{}
	next.Pools = nil
	for _, p := range t.Pools {
		is := *p
		any = to(p, &is) || any
		pools[p] = &is
		next.Pools = append(next.Pools, &is)
	}
	if !any {
		return nil
	}
	for _, p := range next.Pools {
		p.Failover.Gutter = pools[p.Failover.Gutter]
	}
	next.Listeners = nil
	for _, l := range t.Listeners {
		routes := l.Routes
		l.Routes = nil
		for _, r := range routes {
			r.Pool, r.Prefer = pools[r.Pool], pools[r.Prefer]
			also := r.Also
			r.Also = nil
			for _, p := range also {
				r.Also = append(r.Also, pools[p])
			}
			l.Routes = append(l.Routes, r)
		}
		next.Listeners = append(next.Listeners, l)
	}
	return &next
}
