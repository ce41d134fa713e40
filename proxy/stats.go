package proxy

// This file implements the stats command, by its argument:
//
//	none, settings, items, slabs, sizes, detail dump, cachedump C N
//	                        every server is asked; package stats merges the replies
//	detail on, off          every server carries it out, or SERVER_ERROR names those that did not
//	reset                   the same. Ringside's own counters stay, because their readers do not expect resets
//	conns                   Ringside's clients on all loops, without listening sockets
//	proxy                   Ringside's own counters since its start
//	routes                  the listener's routes: hit rate and commands of each
//	servers                 the listener's servers as Ringside sees them
//	extstore, sizes_enable, sizes_disable
//	                        CLIENT_ERROR: extstore pages belong to one server, and memcached's reply to
//	                        the other two has no end that a proxy can detect
//	anything else           ERROR, as in memcached
//
// A server that is down, late or replies with an error is ignored. If no server remains
// the client gets the servers' error, or SERVER_ERROR with the reason.

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"ringside/proxy/client"
	"ringside/proxy/link"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// stats answers the stats command in e.Req, which has the bytes raw.
func (e *Engine) stats(s *client.Session, raw []byte) {
	words := strings.FieldsFunc(string(e.Req.Args.Of(raw)), func(c rune) bool { return c == ' ' })
	what, args := "", words
	if len(words) > 0 {
		what, args = words[0], words[1:]
	}
	if list := lists[what]; list != nil {
		e.askStats(s, what, list)
		return
	}
	switch what {
	case "detail":
		e.statsDetail(s, args)
	case "cachedump":
		e.statsCachedump(s, args)
	case "reset":
		e.askAll(s, []byte("stats reset\r\n"), &unanimous{e: e, want: "RESET\r\n", not: "not reset"})
	case "conns":
		e.statsConns(s)
	case "proxy":
		e.statsProxy(s)
	case "routes":
		e.statsRoutes(s)
	case "servers":
		e.statsServers(s)
	case "extstore", "sizes_enable", "sizes_disable":
		e.local(s, fmt.Appendf(nil, "CLIENT_ERROR ask one server directly for stats %s\r\n", what), stats.ClientFault)
	default:
		e.local(s, []byte(wire.AnswerError), stats.ClientFault)
	}
}

// lists has the arguments of stats that are sent to all servers, and how their replies are merged.
var lists = map[string]*stats.List{
	"": stats.General, "settings": stats.Settings, "items": stats.Items, "slabs": stats.Slabs, "sizes": stats.Sizes,
}

// askStats sends the command stats with the argument `what` to every server. It merges the replies, which are of
// the form list.
func (e *Engine) askStats(s *client.Session, what string, list *stats.List) {
	line := append([]byte("stats "), what...)
	line = append(bytes.TrimRight(line, " "), wire.CRLF...)
	e.askAll(s, line, &statsMerge{e: e, list: list})
}

// listingConn is the number of the dedicated connection for askListing.
const listingConn = 1<<30 + 1

var answerListing = wire.AppendServerError(nil, "another client lists keys with stats at the moment: try again")

// askListing does what askStats does, for a reply that contains keys. memcached sends them as they are. A key of a
// binary client can contain line ends, and so the end of the reply and replies to later requests. So the request is
// the only one on a connection, which is closed after the reply. At most one such command runs in a loop.
func (e *Engine) askListing(s *client.Session, what string, list *stats.List) {
	if e.listings > 0 {
		e.local(s, answerListing, stats.Unavailable)
		return
	}
	line := fmt.Appendf(nil, "stats %s\r\n", what)
	e.askAll(s, line, &statsMerge{e: e, list: list, keys: true})
}

// listingPart is the part of one server.
type listingPart struct {
	*client.Part
	e *Engine
}

func (p *listingPart) Done(c *upstream.Conn, a *upstream.Attempt) {
	p.e.listings--
	p.Part.Done(c, a)
	c.Server.CloseDedicated(listingConn)
}

func (p *listingPart) Failed(c *upstream.Conn, a *upstream.Attempt, f upstream.Failure) {
	p.Part.Failed(c, a, f)
	p.e.Post(func(e *Engine) { // not at once, because the requests of c are just failing
		e.listings--
		c.Server.CloseDedicated(listingConn)
	})
}

var answerDetailUsage = []byte("CLIENT_ERROR usage: stats detail on|off|dump\r\n") // memcached's reply to an unknown argument

func (e *Engine) statsDetail(s *client.Session, args []string) {
	if len(args) == 0 {
		args = []string{""}
	}
	switch args[0] {
	case "on", "off":
		e.askAll(s, []byte("stats detail "+args[0]+"\r\n"), &unanimous{e: e, want: wire.AnswerOK, not: "without stats detail " + args[0]})
	case "dump":
		e.askListing(s, "detail dump", stats.Prefixes)
	default:
		e.local(s, answerDetailUsage, stats.ClientFault)
	}
}

// memcached's replies to cachedump without arguments and with bad arguments.
var (
	answerCachedump       = []byte("CLIENT_ERROR bad command line\r\n")
	answerCachedumpFormat = []byte("CLIENT_ERROR bad command line format\r\n")
)

func (e *Engine) statsCachedump(s *client.Session, args []string) {
	if len(args) < 2 {
		e.local(s, answerCachedump, stats.ClientFault)
		return
	}
	class, bad := strconv.ParseUint(args[0], 10, 32)
	limit, worse := strconv.ParseUint(args[1], 10, 32)
	if bad != nil || worse != nil {
		e.local(s, answerCachedumpFormat, stats.ClientFault)
		return
	}
	e.askListing(s, fmt.Sprintf("cachedump %d %d", class, limit), stats.Cachedump(limit))
}

// statsMerge collects replies that are lists: STAT, ITEM or PREFIX lines and END. It merges them in steps: see
// Engine.merging.
type statsMerge struct {
	e       *Engine
	list    *stats.List
	keys    bool // the replies contain keys: see askListing
	answers [][]byte
	asked   int
	refusal []byte       // first reply that is an error instead of a list; nil: none
	why     string       // reason of the first server that did not reply
	merge   *stats.Merge // nil: not all servers have replied, or there is nothing to merge
	merged  []byte       // the lines that the last step has written
	sent    bool         // a part of the merged reply was sent to the client
	full    bool         // limits.memory had no room for the merge
}

func (m *statsMerge) Add(_ *upstream.Server, answer []byte, failed string) {
	m.asked++
	switch {
	case failed != "" && m.why == "":
		m.why = failed
	case failed != "":
	case bytes.HasSuffix(answer, wire.EndLine):
		m.answers = append(m.answers, answer)
	case m.refusal == nil:
		m.refusal = answer[bytes.LastIndexByte(answer[:len(answer)-1], '\n')+1:]
	}
}

// mergeStep is the number of lines in a step of a merge. A line is about as much work as a key.
const mergeStep = client.TurnKeys

// Combine does a step of the merge, and sends the lines that it has written.
func (m *statsMerge) Combine(x *client.Exchange) (done bool) {
	if len(m.answers) == 0 {
		return true
	}
	if m.merge == nil {
		m.merge = stats.NewMerge(m.list, m.answers, stats.About{
			Pid:     m.e.Shared.PID,
			Loops:   len(m.e.Shared.Engines()),
			Asked:   m.asked,
			Missing: m.asked - len(m.answers),
		})
	}
	before := m.merge.Held()
	m.merged, done = m.merge.Step(m.merged[:0], mergeStep)
	used := m.merge.Held() - before
	if m.full = !m.sent && m.e.Scarce(used+len(m.merged)); m.full || done {
		return true
	}
	x.HoldGathered(used)
	m.sent = x.EmitPart(m.merged) || m.sent
	x.Waiting++
	m.e.mergeLater(x, m.keys)
	return false
}

// unmerged is an exchange with a merge that is not finished.
type unmerged struct {
	x    *client.Exchange
	keys bool // see statsMerge
}

// mergeLater continues the merge of x in a later wakeup. After the first steps, a loop does one step per wakeup,
// however many merges there are.
func (e *Engine) mergeLater(x *client.Exchange, keys bool) {
	if keys {
		e.listings++ // no other listing may begin
	}
	if e.merging = append(e.merging, unmerged{x, keys}); len(e.merging) == 1 {
		e.Post((*Engine).mergeNext)
	}
}

// mergeNext does the next step of the merge that has waited longest.
func (e *Engine) mergeNext() {
	u := e.merging[0]
	if e.merging = e.merging[1:]; len(e.merging) > 0 {
		e.Post((*Engine).mergeNext)
	}
	if u.keys {
		e.listings--
	}
	u.x.FinishOne()
}

var answerMergeFull = wire.AppendServerError(nil, "no room to merge the replies of the servers: "+link.OutOfMemory)

func (m *statsMerge) Answer(dst []byte) ([]byte, stats.Outcome) {
	switch {
	case m.full:
		return append(dst, answerMergeFull...), stats.Unavailable
	case m.merge != nil:
		return append(dst, m.merged...), stats.Okay
	case m.refusal != nil && bytes.HasPrefix(m.refusal, []byte("SERVER_ERROR")):
		return append(dst, m.refusal...), stats.ServerFault
	case m.refusal != nil:
		return append(dst, m.refusal...), stats.ClientFault
	}
	return wire.AppendServerError(dst, fmt.Sprintf("no server replied (%d asked): %s", m.asked, m.why)), stats.Unavailable
}
