package proxy

// The clients of all loops, for people.

import (
	"ringside/proxy/stats"
)

// Clients describes the clients that come first in the order by, at most so many of
// them, unless most is 0. It fails as Snapshot does.
func (p *Proxy) Clients(by stats.ClientOrder, most int) (*stats.ClientList, error) {
	list := newClientList(by, most)
	if err := p.waited(func(e *Engine) { e.describe(list) }); err != nil {
		return nil, err
	}
	list.End()
	return list, nil
}

func newClientList(by stats.ClientOrder, most int) *stats.ClientList {
	return &stats.ClientList{By: by, Most: most, Waits: map[uint64]stats.Wait{}}
}

// describe adds the clients of e. Names are made only of those that are shown: there
// may be a hundred thousand others.
func (e *Engine) describe(into *stats.ClientList) {
	list := make([]stats.ClientSnapshot, 0, len(e.Sessions))
	for s := range e.Sessions {
		list = append(list, s.Snapshot())
	}
	into.All += len(list)
	list = into.Cut(list)
	shown := make(map[uint64]*stats.ClientSnapshot, len(list))
	for i := range list {
		shown[list[i].ID] = &list[i]
	}
	for s := range e.Sessions {
		if c := shown[s.ID]; c != nil {
			c.Address, c.State = s.Peer(), s.State()
			if lst := e.listener(s); lst != nil {
				c.Listener = lst.Name
			}
		}
	}
	into.List = append(into.List, list...)
	e.Servers.Waits(into.Told)
	e.Tasks.Waits(into.Told)
}
