package replicate

// All commands, and the possible outcomes of their asks.

// commands returns all commands that a rule treats differently.
func commands() []Command {
	var all []Command
	for op := Op(0); op < NumOps; op++ {
		all = append(all, Command{Op: op})
	}
	return append(all,
		Command{Op: Get, Vivify: true, Win: true},
		Command{Op: Get, Win: true},
		Command{Op: Gat, Vivify: true, Win: true},
		Command{Op: Set, If: true},
		Command{Op: Add, If: true},
		Command{Op: Replace, If: true},
		Command{Op: Append, If: true},
		Command{Op: Append, Vivify: true},
		Command{Op: Cas, If: true, Stale: true},
		Command{Op: Incr, Vivify: true},
		Command{Op: Incr, If: true},
		Command{Op: Set, Conditional: true},
		Command{Op: Delete, Conditional: true},
		Command{Op: Delete, If: true},
		Command{Op: Delete, Stale: true},
		Command{Op: Delete, If: true, Stale: true},
		Command{Op: Set, Expires: true},
		Command{Op: Touch, Expires: true},
		Command{Op: Gat, Expires: true},
		Command{Op: Incr, Expires: true},
	)
}

// outcomes returns what a server, or the connection to it, can make of an ask. few omits
// one of two outcomes that every rule treats alike in nearly all places.
func outcomes(c Command, d Step, few bool) []Outcome {
	o := func(kinds ...Kind) []Outcome {
		var all []Outcome
		for _, k := range kinds {
			if k == Hit && d == Look && c.Stale && c.Op == Cas { // the token is older, newer, or matches
				all = append(all, Outcome{Kind: k}, Outcome{Kind: k, Value: 2})
				if !few {
					all = append(all, Outcome{Kind: k, Value: 1})
				}
				continue
			}
			if (k == Hit || k == Expiring) && d == Fetch && (c.Op == Cas || c.Op == Replace) { // the value of the command, or another one
				all = append(all, Outcome{Kind: k, Value: 1})
			}
			all = append(all, Outcome{Kind: k, Value: 7})
			if k == Hit && (d == Preview || d == Fetch && c.Op == Incr) {
				all = append(all, Outcome{Kind: k, Value: 8})
			}
		}
		return all
	}
	var all []Outcome
	switch d {
	case Forward:
		switch c.Op {
		case Get, Gets, Gat, Gats:
			if all = o(Hit, Miss); !few {
				all = append(all, o(Marked)...)
			}
		case Debug:
			all = o(Hit, Miss)
		case Set, Cas:
			all = o(Stored)
			if c.If || c.Op == Cas {
				all = o(Stored, Exists, NotFound)
			}
		case Add:
			all = o(Stored, NotStored)
		case Replace, Append, Prepend:
			all = o(Stored, NotStored)
			if c.If {
				all = o(Stored, Exists, NotFound)
			}
		case Incr, Decr:
			all = o(Number, NotFound)
			if c.If {
				all = o(Number, NotFound, Exists)
			}
		case Touch:
			all = o(Touched, NotFound)
		case Delete:
			all = o(Deleted, NotFound)
			if c.If {
				all = o(Deleted, NotFound, Exists)
			}
		case Flush:
			all = o(OK)
		}
		if !few {
			all = append(all, o(ClientError)...)
		}
	case Join:
		all = o(Stored, Exists)
	case Preview:
		all = o(Hit, Miss)
	case Extend:
		if all = o(Touched, NotFound); !few {
			all = append(all, o(Marked)...)
		}
	case Remove:
		all = o(Deleted, NotFound)
		if few {
			all = o(Deleted)
		}
	case Fetch, Look:
		all = o(Hit, Miss, Marked)
		if few {
			all = o(Hit, Miss)
		}
		if d == Fetch {
			all = append(all, o(Expiring)...)
			switch c.Op {
			case Incr, Touch:
				all = append(all, Outcome{Kind: Miss, Value: 1}, Outcome{Kind: Stale, Value: 7})
			case Append, Cas:
				all = append(all, Outcome{Kind: Stale, Value: 7})
			}
		}
	case Check:
		if all = o(Hit, Exists); c.Op == Append || c.Op == Prepend {
			all = append(all, o(Marked)...)
		}
	case Claim:
		all = o(Stored, NotStored)
	case PlaceTombstone:
		all = o(Stored)
	case Fill, RefreshTombstone:
		all = o(Stored, Exists)
	case Store:
		all = o(Stored, Exists)
		if c.Op == Delete {
			all = o(Deleted, Exists)
		}
		if !few {
			all = append(all, o(ClientError)...)
		}
	case Drop:
		all = o(Deleted, Exists)
	case Wait:
		return o(OK)
	}
	all = append(all, o(ServerError, InDoubt)...)
	if !few {
		all = append(all, o(Unsent)...)
	}
	return all
}

// menu caches outcomes for one command, because every state asks for them: by few, then by
// step.
type menu [2][NumSteps][]Outcome

func (x *explorer) outcomes(d Step, few bool) []Outcome {
	m := &x.menu[0]
	if few {
		m = &x.menu[1]
	}
	if m[d] == nil {
		m[d] = outcomes(x.c, d, few)
	}
	return m[d]
}
