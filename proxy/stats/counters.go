package stats

// This part of the package has the counters of an engine. They are plain integers that only the
// engine's goroutine writes. Other goroutines read a copy, which the engine makes between two
// wakeups.

import (
	"math/bits"
	"reflect"
	"time"

	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Outcome is how a command ended. It records what really happened: an error counts as an error even
// if the client got a miss because get_errors is off.
type Outcome uint8

// The outcomes of a command.
const (
	Okay        Outcome = iota // the command was executed; the reply is OK, HD, a number, TOUCHED or DELETED
	Hit                        // a read that found at least one key
	Miss                       // a read that found no key
	Stored                     // the reply is STORED
	NotStored                  // the reply is NOT_STORED
	Exists                     // the reply is EXISTS
	NotFound                   // the reply is NOT_FOUND
	ClientFault                // a malformed command, or one rejected as the client's mistake
	ServerFault                // the server replied SERVER_ERROR
	TimedOut                   // the server did not reply before the timeout
	Lost                       // the server connection broke before the reply
	Unavailable                // no server was available
	QueueFull                  // the queue of requests to the server was full
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
	"ok", "hit", "miss", "stored", "not_stored", "exists", "not_found", "client_error", "server_error",
	"timeout", "lost", "unavailable", "queue_full",
}

func (o Outcome) String() string { return outcomeNames[o] }

// Failed reports whether the outcome o means that the command has no correct reply from a server.
func (o Outcome) Failed() bool { return o >= ServerFault }

var outcomes = [wire.NumKinds]Outcome{
	wire.Value: Hit, wire.Header: Okay, wire.Miss: Miss, wire.End: Miss, wire.Stored: Stored, wire.NotStored: NotStored,
	wire.Exists: Exists, wire.NotFound: NotFound, wire.Error: ClientFault, wire.ClientError: ClientFault, wire.ServerError: ServerFault,
}

// OutcomeOf returns the outcome of a command that has a reply of the kind k.
func OutcomeOf(k wire.Kind) Outcome { return outcomes[k] }

// LostCount is the reason why buffered increments were lost.
type LostCount uint8

// The reasons why buffered increments were lost.
const (
	LostMissing     LostCount = iota // the counter does not exist, or its value is not a number
	LostUnreachable                  // the server could not be reached for too long
	LostUnsure                       // the server did not reply, so it is unknown whether it has executed the increments
	LostOverwritten                  // a set or delete of the counter was executed before the increments were sent, so their loss has no effect
	NumLost
)

func (l LostCount) String() string {
	return [NumLost]string{"missing", "unreachable", "unsure", "overwritten"}[l]
}

// Buffered counts buffered increments (see package counters) and what happened to them.
type Buffered struct {
	Increments uint64          // number of increments that were buffered
	Flushes    uint64          // number of requests to servers that carried buffered increments
	Flushed    uint64          // number of buffered increments that were sent to servers
	Lost       [NumLost]uint64 // sums of the lost increments, by reason
}

// TombstoneEvent is an event about a tombstone that replication stores in place of a value.
type TombstoneEvent uint8

// The events of tombstones.
const (
	TombstoneMade      TombstoneEvent = iota // a command or a repair of this process stored a tombstone
	TombstoneLeft                            // a tombstone was sent after a set that timed out; it is unknown whether it replaced a value
	TombstoneMet                             // a tombstone was found in place of a value: another command on the key is in progress, or its process has ended
	TombstoneTaken                           // an old tombstone was found and replaced by a value; the command that had stored it had enough time to finish
	TombstoneReplaced                        // an append or touch changed a tombstone as if it were a value, so the tombstone was replaced by a new one
	TombstoneDisturbed                       // the tombstone was gone when the command that had stored it wanted to remove it, so the command was repeated or failed
	NumTombstoneEvents
)

func (m TombstoneEvent) String() string {
	return [NumTombstoneEvents]string{"made", "left", "met", "taken", "replaced", "disturbed"}[m]
}

// TombstoneUser is a kind of command that has stored or found a tombstone.
type TombstoneUser uint8

// The kinds of commands that store or find tombstones.
const (
	TombstoneOfOther TombstoneUser = iota // any command that is not one of the other kinds
	TombstoneOfDelete
	TombstoneOfAdd
	TombstoneOfRepair // a repair of a replica, a resync of a server, or a move of a key to another server
	NumTombstoneUsers
)

func (u TombstoneUser) String() string {
	return [NumTombstoneUsers]string{"other", "delete", "add", "repair"}[u]
}

// Marks counts the tombstones of replicas by event and by kind of command.
type Marks [NumTombstoneEvents][NumTombstoneUsers]uint64

// MaxDeleteRounds is how many times a delete of a replicated key stores tombstones on the replicas,
// at most.
const MaxDeleteRounds = 3

// Counters is everything that one engine has counted since it started.
type Counters struct {
	RouteCounters                        // counters of commands that match no route, and of routes that were removed
	Latency       [wire.NumOps]Histogram // durations from the request of a client to its reply, by command

	Repairs, RepairsDropped uint64 // repairs of single keys: those that were started; those that were given up because too many waited or they kept failing
	Marks                   Marks
	DeleteRounds            [MaxDeleteRounds]uint64 // number of deletes of replicated keys; index i has those that stored tombstones i+1 times
	Refilled                uint64                  // number of keys that were copied to servers that rejoined empty

	Wakeups, Reads, Writes uint64 // wakeups of the event loop, and its reads and writes; only reads and writes that transferred bytes count

	Accepted            uint64 // number of clients that were accepted
	Refused             uint64 // number of clients that were rejected because of limits.clients
	TooLate             uint64 // number of clients that were reset because Ringside was stopping or the listener was removed
	Unaccepted          uint64 // number of clients that could not be accepted, because the system had no descriptors or memory left
	PlainRefused        uint64 // number of clients that were rejected because they sent plain text to a listener with TLS
	TLSRefused          uint64 // number of clients that were rejected because they began a TLS handshake on a listener without TLS
	Handshakes          Handshakes
	ClientIn, ClientOut uint64 // number of bytes read from clients, and of bytes sent to clients
	LoginsFailed        uint64 // number of logins with a wrong user or password
	LoginsClosed        uint64 // number of clients that were closed after too many failed logins
	Closed
	CountersMade uint64 // number of counters that autocreate has created

	Buffer Buffered

	NoMemory uint64 // number of values that were rejected because of limits.memory
	TooLarge uint64 // number of values that were rejected because of limits.value
	Desyncs  uint64 // number of server connections that were closed because replies could no longer be matched to requests

	WaitedForMemory uint64 // number of waits of clients with a large request because half of limits.memory was in use
	WaitedForServer uint64 // number of waits of clients with a large request because their server had many unsent bytes or tasks

	ReplyFaults uint64 // number of commands that would have ended without a reply or with more than one; each is a bug in Ringside
}

// Handshakes counts the TLS handshakes of clients, by result.
type Handshakes struct {
	Done    uint64 // handshakes that were completed
	Resumed uint64 // those of them that resumed a session
	Failed  uint64 // handshakes that failed, or that the client gave up
	Late    uint64 // handshakes that were not complete in time
	Crowded uint64 // handshakes that were given up because there were too many
}

// Closed counts the clients that Ringside has closed, by reason.
type Closed struct {
	IdleClosed       uint64 // clients that were closed because of limits.idle
	UnfinishedClosed uint64 // clients that were closed because of limits.unfinished
	LoginsLate       uint64 // clients that were closed because they did not log in in time
	OutputClosed     uint64 // clients that were closed because of limits.output_hard
	MemoryClosed     uint64 // clients that were closed because of limits.memory
	UnreadClosed     uint64 // clients that were closed because they did not read, while others waited for memory with large requests
	EndedClosed      uint64 // clients that were closed before their last replies because of limits.clients
	CutOff           uint64 // clients that were closed because a server failed in the middle of a value
}

// ServerCounters is everything that one engine has counted about one server.
type ServerCounters struct {
	Requests        uint64 // number of requests that were put into the queue of a connection
	Own             uint64 // number of Ringside's own requests; they are also in Requests
	Failed          uint64 // number of requests without a reply
	TimedOut        uint64 // number of requests without a reply before the timeout; they are also in Failed
	Refused         uint64 // number of requests that were rejected because the server was down
	QueueFull       uint64 // number of requests that were rejected because the queue was full
	Shed            uint64 // number of requests that were rejected or not sent because limits.memory was reached
	LateDeletes     uint64 // number of deletes that were sent after writes that failed but may still be executed
	LateDeletesLost uint64 // number of late deletes without a reply
	Overridden      uint64 // number of requests that were rejected because an operator had drained the server or taken it down
	Errors          uint64 // number of replies SERVER_ERROR to requests of clients' commands

	DeadByPing    uint64 // number of idle connections that a ping found to be broken
	DeadByRequest uint64 // number of connections that the first request after a quiet period found to be broken
	ReadsResent   uint64 // number of plain reads that were sent again because their connection was broken

	Dials, Lost, ClosedIdle, WentDown uint64    // attempts to connect; connections lost with requests in flight; connections that the server closed without requests in flight; how often the server was down
	BytesIn, BytesOut                 uint64    // number of bytes read from the server, and of bytes sent to the server
	Latency                           Histogram // durations of the requests that got a reply
}

// Histogram counts durations in buckets. The upper bound of a bucket is twice that of the fourth
// bucket before it. The bounds are from 1 µs to 17 s, and a bucket is at most 19 % wide.
type Histogram struct {
	Buckets [24*4 + 1]uint64
	Sum     uint64 // sum of all durations, in nanoseconds
}

// Observe counts one duration, which is given in nanoseconds.
func (h *Histogram) Observe(ns int64) {
	ns = max(ns, 0)
	h.Sum += uint64(ns)
	h.Buckets[bucket(uint64(ns))]++
}

// ObserveSeveral counts a duration, in nanoseconds, n times.
func (h *Histogram) ObserveSeveral(n int, ns int64) {
	h.Sum += uint64(n) * uint64(max(ns, 0))
	h.Buckets[bucket(uint64(max(ns, 0)))] += uint64(n)
}

func bucket(ns uint64) int {
	us4 := ns / 256 // duration in units of 256 ns, which is about a quarter of a microsecond
	if us4 < 4 {
		return 0
	}
	exp := bits.Len64(us4) - 3
	i := exp*4 + int(us4>>exp) - 4 + 1
	return min(i, len(Histogram{}.Buckets)-1)
}

// Bound returns the upper bound of bucket i, in nanoseconds.
func Bound(i int) uint64 {
	if i == 0 {
		return 4 * 256
	}
	i--
	return uint64(i%4+5) << (i / 4) * 256
}

// Count returns the number of durations that were counted.
func (h *Histogram) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// Add adds the counts of the histogram o to h.
func (h *Histogram) Add(o *Histogram) { sumUp(h, o) }

// Snapshot is the sum of the counters of all engines of a process, with the state of servers and
// pools.
type Snapshot struct {
	Counters                            // sums over all engines, including those of all routes
	Servers  map[string]*ServerSnapshot // state of each server, by network and address
	Routes   map[RouteName]*RouteCounters
	Phases   []PhaseSnapshot            // state of each server of the pools that have a keeper
	Events   []PhaseEvents              // how often the keepers have made each kind of decision
	Rolls    []Roll                     // instances that serve each pool that has a keeper
	Shared   []Shared                   // servers that this instance and another one eject differently: see the type Shared
	Lacks    map[[2]string]Lack         // what servers with replicas lack, by pool and name of the server
	Fills    map[string]*FillCounters   // by pool that fills from another one
	Resizes  map[string]*ResizeSnapshot // changes of the servers of pools that coordinate them, by pool
	Clients  int                        // number of connected clients
	InFlight int                        // number of clients' commands without a reply

	Moving    bool          // true while a reload moves replicated keys to other servers, and shortly before
	Unsettled time.Duration // how long another reload should wait and then check again, because instances may be in different stages of a handover (barrier.Status.Open); 0: it need not wait

	BufferKeys    int    // number of counters that have buffered increments, or may have some
	BufferPending uint64 // sum of all buffered increments

	Parked int   // number of commands that are parked until they can continue; see package task
	Lines  int   // number of queues of commands on the same key; see package task
	Memory int64 // memory of all buffers, including free ones that are kept for reuse, in bytes
	Kept   int64 // part of Memory that is free and kept for reuse, in bytes
}

// Shared is a server that only one of two instances ejects, or that both eject through different
// pools. The reason is that the configurations of the instances differ.
type Shared struct {
	Pool, Server string // names of the pool and the server in this instance's configuration
	Other        string // name of the pool in the other instance's configuration
	Keeps        bool   // true if this instance ejects the server, and the pool of the other instance does not
}

// Lack is what a server with replicas lacks, as far as this process knows.
type Lack struct {
	Filling bool   // true if the server has rejoined empty and does not have all its keys yet
	Copied  uint64 // number of keys that were copied to the server since it rejoined empty
	Missed  int    // number of keys of which the server has missed a write
	Waiting int    // number of keys to delete on the server, or to copy to it, as soon as it replies
	Flush   bool   // true if the server has missed more writes than the ledger can record; the server is then flushed before it is read
}

// ServerSnapshot is the state of one server, as the engines see it.
type ServerSnapshot struct {
	ServerCounters
	Target    table.Target
	Known     bool   // true if at least one engine has received a reply from the server
	Down      int    // number of engines that consider the server down
	Why       string // the reason why the server is down
	Age       int64  // nanoseconds since the first engine considered the server down; if none does, nanoseconds since the last change
	Version   string // memcached version that the server has reported; empty: unknown
	Conns     int    // number of open connections to the server
	Waiting   int    // number of requests to the server without a reply
	Timeouts  int    // number of requests that timed out since the last reply
	Lingering int    // number of additional connections that only wait for late replies
	Error     string // last SERVER_ERROR line that the server sent for a client's command; empty: none
}

// Add adds the counters of o to into.
func (into *Counters) Add(o *Counters) { sumUp(into, o) }

// Add adds the counters of o to into.
func (into *ServerCounters) Add(o *ServerCounters) { sumUp(into, o) }

// sumUp adds every number of o to the same field of into. Both are pointers to the same type. sumUp
// uses reflection, so a new counter cannot be forgotten. It skips pointers in them; other code adds
// up what these point to. It needs about 20 µs for all counters of an engine.
func sumUp(into, o any) { addNumbers(reflect.ValueOf(into).Elem(), reflect.ValueOf(o).Elem()) }

func addNumbers(into, o reflect.Value) {
	switch into.Kind() {
	case reflect.Uint64:
		into.SetUint(into.Uint() + o.Uint())
	case reflect.Struct:
		for i := range into.NumField() {
			addNumbers(into.Field(i), o.Field(i))
		}
	case reflect.Array:
		if into.Type().Elem().Kind() != reflect.Uint64 {
			for i := range into.Len() {
				addNumbers(into.Index(i), o.Index(i))
			}
			return
		}
		sums := into.Slice(0, into.Len()).Interface().([]uint64) // nearly all numbers are in such arrays of histograms, and this is faster than reflection for each number
		for i, n := range o.Slice(0, o.Len()).Interface().([]uint64) {
			sums[i] += n
		}
	case reflect.Pointer:
	default:
		panic("stats: counters are uint64, and nothing adds up a " + into.Type().String())
	}
}
