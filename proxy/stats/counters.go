package stats

// The counters of an engine. They are plain integers that only the engine's goroutine
// writes. Other goroutines read a copy, which the engine makes between two wakeups.

import (
	"math/bits"
	"reflect"
	"time"

	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Outcome is how a command ended. It records what really happened: an error counts as
// the error even if get_errors is off and the client got a miss.
type Outcome uint8

// The outcomes.
const (
	Okay        Outcome = iota // done: OK, HD, a number, TOUCHED, DELETED
	Hit                        // a read that found at least one key
	Miss                       // a read that found no key
	Stored                     // STORED
	NotStored                  // NOT_STORED
	Exists                     // EXISTS
	NotFound                   // NOT_FOUND
	ClientFault                // a malformed command, or one rejected as the client's mistake
	ServerFault                // the server replied SERVER_ERROR
	TimedOut                   // the server did not reply in time
	Lost                       // the server connection broke before the reply
	Unavailable                // no server was available
	QueueFull                  // the queue of the server was full
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
	"ok", "hit", "miss", "stored", "not_stored", "exists", "not_found", "client_error", "server_error",
	"timeout", "lost", "unavailable", "queue_full",
}

func (o Outcome) String() string { return outcomeNames[o] }

// Failed reports whether o means that the server did not reply as it should.
func (o Outcome) Failed() bool { return o >= ServerFault }

var outcomes = [wire.NumKinds]Outcome{
	wire.Value: Hit, wire.Header: Okay, wire.Miss: Miss, wire.End: Miss, wire.Stored: Stored, wire.NotStored: NotStored,
	wire.Exists: Exists, wire.NotFound: NotFound, wire.Error: ClientFault, wire.ClientError: ClientFault, wire.ServerError: ServerFault,
}

// OutcomeOf returns the outcome of a command for a reply of kind k.
func OutcomeOf(k wire.Kind) Outcome { return outcomes[k] }

// LostCount is the reason why buffered increments were lost.
type LostCount uint8

// The reasons.
const (
	LostMissing     LostCount = iota // the counter does not exist, or is not a number
	LostUnreachable                  // the server was unreachable for too long
	LostUnsure                       // the server did not reply: it may have executed the increments or not
	LostOverwritten                  // a set or delete of the counter came before the increments were sent, so their loss has no effect
	NumLost
)

func (l LostCount) String() string {
	return [NumLost]string{"missing", "unreachable", "unsure", "overwritten"}[l]
}

// Buffered counts buffered increments (see package counters) and what happened to them.
type Buffered struct {
	Increments uint64          // commands that were buffered
	Flushes    uint64          // requests that sent buffered increments to a server
	Flushed    uint64          // buffered commands that these requests carried
	Lost       [NumLost]uint64 // sums of lost increments, by reason
}

// TombstoneEvent is an event about a tombstone (mark) that replication stores in place of a value.
type TombstoneEvent uint8

// The events.
const (
	TombstoneMade      TombstoneEvent = iota // a tombstone was stored by a command or a repair of this process
	TombstoneLeft                            // a tombstone was sent after a set that timed out; it is unknown whether it replaced a value
	TombstoneMet                             // a tombstone was found instead of a value: another command on the key is in progress, or its process has ended
	TombstoneTaken                           // a tombstone was found, and was replaced by a value after the command that had stored it had time to finish
	TombstoneReplaced                        // an append or touch was carried out on a tombstone, which was then replaced by a fresh tombstone
	TombstoneDisturbed                       // the tombstone was gone when the command that had stored it wanted to remove it: the command was repeated or failed
	NumTombstoneEvents
)

func (m TombstoneEvent) String() string {
	return [NumTombstoneEvents]string{"made", "left", "met", "taken", "replaced", "disturbed"}[m]
}

// TombstoneUser is the kind of command that stored or found a tombstone.
type TombstoneUser uint8

// The users.
const (
	TombstoneOfOther TombstoneUser = iota // any other command
	TombstoneOfDelete
	TombstoneOfAdd
	TombstoneOfRepair // a repair, a resync, or a move to another server
	NumTombstoneUsers
)

func (u TombstoneUser) String() string {
	return [NumTombstoneUsers]string{"other", "delete", "add", "repair"}[u]
}

// Marks counts the tombstones of replicas by event and by kind of command.
type Marks [NumTombstoneEvents][NumTombstoneUsers]uint64

// MaxDeleteRounds is the maximum number of times that a delete stores tombstones on its
// replicas.
const MaxDeleteRounds = 3

// Counters is everything that one engine has counted since it started.
type Counters struct {
	RouteCounters                        // of commands that match no route, and of routes that were removed
	Latency       [wire.NumOps]Histogram // from the request to its reply, by command

	Repairs, RepairsDropped uint64 // repairs of single keys: started; given up, because too many were waiting or they kept failing
	Marks                   Marks
	DeleteRounds            [MaxDeleteRounds]uint64 // deletes of replicated keys; index i counts those that stored their tombstones i+1 times
	Refilled                uint64                  // keys copied to servers that rejoined empty

	Wakeups, Reads, Writes uint64 // of the event loop; Reads and Writes count only calls that transferred bytes

	Accepted            uint64 // clients accepted
	Refused             uint64 // clients rejected by limits.clients
	TooLate             uint64 // clients reset because Ringside is stopping or the listener was removed
	Unaccepted          uint64 // failed accepts: the system is out of descriptors or memory
	ClientIn, ClientOut uint64 // bytes read from clients, sent to clients
	LoginsFailed        uint64 // logins with a wrong user or password
	LoginsClosed        uint64 // clients closed after too many failed logins
	Closed
	CountersMade uint64 // counters created by autocreate

	Buffer Buffered

	NoMemory uint64 // values rejected by limits.memory
	TooLarge uint64 // values rejected by limits.value
	Desyncs  uint64 // server connections closed because replies could no longer be matched to requests

	ReplyFaults uint64 // commands that would have ended with no reply or with more than one: bugs
}

// Closed counts the clients that Ringside closed, by reason.
type Closed struct {
	IdleClosed       uint64 // limits.idle
	UnfinishedClosed uint64 // limits.unfinished
	LoginsLate       uint64 // clients that did not log in in time
	OutputClosed     uint64 // limits.output_hard
	MemoryClosed     uint64 // limits.memory
	CutOff           uint64 // a server failed in the middle of a value
}

// ServerCounters is everything that one engine has counted about one server.
type ServerCounters struct {
	Requests        uint64 // requests passed to a connection
	Failed          uint64 // requests that got no reply
	TimedOut        uint64 // failed requests that got no reply in time
	Refused         uint64 // requests rejected: the server was down
	QueueFull       uint64 // requests rejected: the queue was full
	Shed            uint64 // requests rejected or not sent: limits.memory was reached
	LateDeletes     uint64 // deletes sent after mutations that failed but may still run
	LateDeletesLost uint64 // late deletes that got no reply
	Overridden      uint64 // requests rejected: an operator has drained the server or taken it down
	Errors          uint64 // replies SERVER_ERROR to requests of clients' commands

	DeadByPing    uint64 // broken connections found by a ping while they were idle
	DeadByRequest uint64 // broken connections found by the first request after a quiet period
	ReadsResent   uint64 // plain reads sent again because their connection was broken

	Dials, Lost, ClosedIdle, WentDown uint64    // attempts to connect; connections lost with requests in flight; connections that the server closed without any; how often the server went down
	BytesIn, BytesOut                 uint64    // bytes read from the server, sent to it
	Latency                           Histogram // of requests that got a reply
}

// Histogram counts durations in buckets. The bounds double every four buckets, from 1
// µs to 17 s, so a bucket is at most 19 % wide.
type Histogram struct {
	Buckets [24*4 + 1]uint64
	Sum     uint64 // of all durations, in nanoseconds
}

// Observe counts one duration, in nanoseconds.
func (h *Histogram) Observe(ns int64) {
	if ns < 0 {
		ns = 0
	}
	h.Sum += uint64(ns)
	h.Buckets[bucket(uint64(ns))]++
}

// ObserveSeveral counts the same duration n times.
func (h *Histogram) ObserveSeveral(n int, ns int64) {
	h.Sum += uint64(n) * uint64(max(ns, 0))
	h.Buckets[bucket(uint64(max(ns, 0)))] += uint64(n)
}

func bucket(ns uint64) int {
	us4 := ns / 256 // units of 256 ns: about a quarter of a microsecond
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

// Count returns the number of durations.
func (h *Histogram) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// Add adds the counts of o.
func (h *Histogram) Add(o *Histogram) { sumUp(h, o) }

// Snapshot is the sum of what all engines of a process have counted.
type Snapshot struct {
	Counters                            // includes all routes
	Servers  map[string]*ServerSnapshot // by network and address
	Routes   map[RouteName]*RouteCounters
	Phases   []PhaseSnapshot    // of the pools that have a keeper
	Events   []PhaseEvents      // decisions of the keepers so far
	Rolls    []Roll             // of the pools that have a keeper
	Shared   []Shared           // servers of these pools that other instances treat differently: see Shared
	Lacks    map[[2]string]Lack // by pool and server: what is missing on the servers that hold replicas
	Clients  int                // connected clients
	InFlight int                // commands without a reply

	Moving    bool          // a reload is moving replicated keys to other servers, or is about to
	Unsettled time.Duration // how long another reload should wait, because instances may be in different stages of a handover (barrier.Status.Open); 0: it need not wait. Check again after that time

	BufferKeys    int    // counters that have buffered increments, or may have
	BufferPending uint64 // sum of the buffered increments

	Parked int   // parked commands: see package task
	Lines  int   // queues of commands on the same key: see package task
	Memory int64 // bytes of buffers in use
	Kept   int64 // the part of Memory that is kept for reuse
}

// Shared is a server that only one of two instances ejects, or that both eject through different
// pools, because their files differ.
type Shared struct {
	Pool, Server string // names in this instance's configuration
	Other        string // the pool of the other instance
	Keeps        bool   // this instance ejects the server, and the pool of the other instance does not
}

// Lack is what is missing on a server with replicas, as far as this process
// knows.
type Lack struct {
	Filling bool   // the server has rejoined empty and is not filled yet
	Copied  uint64 // number of keys copied to the server since it rejoined empty
	Missed  int    // number of keys of which the server has missed a write
	Waiting int    // number of keys to delete on the server or copy to it, as soon as it replies
	Flush   bool   // the server has missed more writes than the ledger can record, so it is flushed before it serves reads
}

// ServerSnapshot is the state of one server, as the engines see it.
type ServerSnapshot struct {
	ServerCounters
	Target    table.Target
	Known     bool   // some engine got a reply from it
	Down      int    // number of engines that consider the server down
	Why       string // the reason why the server is down
	Age       int64  // nanoseconds since the first engine considered it down; if none does, since the last change
	Version   string // as the server last reported; empty: unknown
	Conns     int    // open connections
	Waiting   int    // requests without a reply
	Timeouts  int    // requests in a row that timed out
	Lingering int    // extra connections that only wait for late replies
	Error     string // the last SERVER_ERROR that the server replied to a client's command
}

// Add adds the counts of o.
func (into *Counters) Add(o *Counters) { sumUp(into, o) }

// Add adds the counts of o.
func (into *ServerCounters) Add(o *ServerCounters) { sumUp(into, o) }

// sumUp adds every number of o to the same field of into, which points to the same
// type. It uses reflection, so no new counter can be forgotten. Pointers are skipped:
// their owner adds up the numbers they point to. It needs about 20 µs for all counters
// of an engine.
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
		sums := into.Slice(0, into.Len()).Interface().([]uint64) // fast path: nearly all numbers are in histograms
		for i, n := range o.Slice(0, o.Len()).Interface().([]uint64) {
			sums[i] += n
		}
	case reflect.Pointer:
	default:
		panic("stats: counters are uint64, and nothing adds up a " + into.Type().String())
	}
}
