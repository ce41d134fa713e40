// # Statistics
//
// To existing tools a listener is one memcached: stats asks every server of
// the listener's pools and makes one answer of theirs, in the order in which
// memcached has the lines.
//
//	stats                   merged, see below
//	stats settings          the common value, or mixed where the servers differ or some say nothing
//	stats items             by class: summed; age… the most; evicted_time the least that is not 0
//	stats slabs             by class: summed; chunk_size and chunks_per_page common or mixed;
//	                        active_slabs the number of classes in the answer
//	stats sizes             summed by size; sizes_status common or mixed
//	stats detail dump       summed by prefix
//	stats detail on, off    every server does it, or SERVER_ERROR says which did not
//	stats reset             the same. Ringside's own counters stay: what reads them knows no reset
//	stats cachedump C N     the servers' items one after the other, N in all, keys as the servers know them
//	stats conns             Ringside's clients, of all loops; without listening sockets
//	stats proxy             what Ringside itself has counted, since it started
//	stats servers           the listener's servers as Ringside sees them
//	stats extstore, sizes_enable, sizes_disable
//	                        CLIENT_ERROR: pages are one server's own, and memcached's answer to the
//	                        other two has no end by which a proxy could know it
//	anything else           ERROR, as memcached says
//
// The lines of stats:
//
//	pid, threads            Ringside's: the process, its loops
//	uptime, time            the least
//	version                 the lowest
//	pointer_size            the least
//	accepting_conns         the least: 0 as soon as one server does not accept
//	rusage_user, _system    summed, in seconds
//	hash_power_level        computed anew: the power of two in all buckets together
//	hash_is_expanding, slab_reassign_running, lru_crawler_running
//	                        the most: 1 as soon as one server is at it
//	time_since_server_cert_refresh, extstore_memory_pressure
//	                        the most: the server that needs attention
//	libevent                the common value or mixed
//	every other integer     summed: commands, hits, bytes, items, evictions; and what is a capacity
//	                        or a fill: max_connections, curr_connections, limit_maxbytes, hash_bytes,
//	                        reserved_fds, read_buf_…, response_obj_…, time_in_listen_disabled_us, …
//	any other value         the common value; left out where servers differ
//	ringside_servers        how many servers were asked
//	ringside_servers_missing  how many of them are not in the sums
//
// The last two rules also serve what newer versions of memcached add. A line
// that only some servers have is made of theirs. curr_connections counts the
// servers' connections, most of which are Ringside's; Ringside's own clients
// are curr_connections of stats proxy. Sums stop at the largest 64-bit number.
//
// A server that is down, late or answers with an error is left out. When no
// server is left the answer is their error, or SERVER_ERROR and why.
package proxy

// The stats command: who is asked, and what becomes of the answers.

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"ringside/proxy/client"
	"ringside/proxy/stats"
	"ringside/proxy/upstream"
	"ringside/proxy/wire"
)

// stats answers the stats command in e.req, whose bytes are raw.
func (e *Engine) stats(s *client.Session, raw []byte) {
	words := strings.FieldsFunc(string(e.Req.Args.Of(raw)), func(c rune) bool { return c == ' ' })
	what, args := "", words
	if len(words) > 0 {
		what, args = words[0], words[1:]
	}
	switch what {
	case "":
		e.askStats(s, what, stats.MergeGeneral)
	case "settings":
		e.askStats(s, what, stats.MergeSettings)
	case "items":
		e.askStats(s, what, stats.MergeItems)
	case "slabs":
		e.askStats(s, what, stats.MergeSlabs)
	case "sizes":
		e.askStats(s, what, stats.MergeSizes)
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
	case "servers":
		e.statsServers(s)
	case "extstore", "sizes_enable", "sizes_disable":
		e.local(s, fmt.Appendf(nil, "CLIENT_ERROR ask one server directly for stats %s\r\n", what), stats.ClientFault)
	default:
		e.local(s, []byte(wire.AnswerError), stats.ClientFault)
	}
}

// askStats asks every server for stats what, and lets merge make one of the
// answers.
func (e *Engine) askStats(s *client.Session, what string, merge mergeFunc) {
	line := append([]byte("stats "), what...)
	line = append(bytes.TrimRight(line, " "), wire.LineEnd...)
	e.askAll(s, line, &statsMerge{merge: merge, pid: e.Shared.PID, loops: len(e.Shared.Engines())})
}

var answerDetailUsage = []byte("CLIENT_ERROR usage: stats detail on|off|dump\r\n") // memcached's

func (e *Engine) statsDetail(s *client.Session, args []string) {
	if len(args) == 0 {
		args = []string{""}
	}
	switch args[0] {
	case "on", "off":
		e.askAll(s, []byte("stats detail "+args[0]+"\r\n"), &unanimous{e: e, want: wire.AnswerOK, not: "without stats detail " + args[0]})
	case "dump":
		e.askStats(s, "detail dump", stats.MergePrefixes)
	default:
		e.local(s, answerDetailUsage, stats.ClientFault)
	}
}

// What memcached says to a cachedump without, and with bad, arguments.
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
	e.askStats(s, fmt.Sprintf("cachedump %d %d", class, limit), func(dst []byte, answers [][]byte, _ stats.About) []byte {
		return stats.AppendItems(dst, answers, limit)
	})
}

// merged gathers lists: STAT, ITEM or PREFIX lines and END.
type statsMerge struct {
	merge   mergeFunc
	pid     int // Ringside's
	loops   int // Ringside's
	answers [][]byte
	asked   int
	refusal []byte // the first answer that is no list
	why     string // of the first server without an answer
}

// mergeFunc appends to dst what the lists of several servers say together,
// END included.
type mergeFunc func(dst []byte, answers [][]byte, a stats.About) []byte

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

func (m *statsMerge) Answer(dst []byte) ([]byte, stats.Outcome) {
	switch {
	case len(m.answers) > 0:
		return m.merge(dst, m.answers, stats.About{
			Pid:     m.pid,
			Loops:   m.loops,
			Asked:   m.asked,
			Missing: m.asked - len(m.answers),
		}), stats.Okay
	case m.refusal != nil && bytes.HasPrefix(m.refusal, []byte("SERVER_ERROR")):
		return append(dst, m.refusal...), stats.ServerFault
	case m.refusal != nil:
		return append(dst, m.refusal...), stats.ClientFault
	}
	return wire.AppendServerError(dst, fmt.Sprintf("none of %d servers answers: %s", m.asked, m.why)), stats.Unavailable
}
