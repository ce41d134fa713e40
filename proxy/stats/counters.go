package stats

// What an engine counts. Plain numbers, written by one goroutine; others read
// a copy that the engine makes for them between two wakeups.

import (
	"math/bits"

	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// Outcome is how a command ended, told truthfully: an error that get_errors
// shows as a miss is counted as the error.
type Outcome uint8

// The outcomes.
const (
	Okay        Outcome = iota // done: OK, HD, a number, TOUCHED, DELETED
	Hit                        // a read of which at least one key was there
	Miss                       // a read of which none was
	Stored                     // STORED
	NotStored                  // NOT_STORED
	Exists                     // EXISTS
	NotFound                   // NOT_FOUND
	ClientFault                // malformed, or refused as the client's mistake
	ServerFault                // a server's SERVER_ERROR
	TimedOut                   // a server did not answer in time
	Lost                       // a server's connection broke under it
	Unavailable                // no server to ask
	Crowded                    // too many requests wait for the server
	NumOutcomes
)

var outcomeNames = [NumOutcomes]string{
	"ok", "hit", "miss", "stored", "not_stored", "exists", "not_found", "client_error", "server_error",
	"timeout", "lost", "unavailable", "crowded",
}

func (o Outcome) String() string { return outcomeNames[o] }

// Failed reports whether o means that a server did not answer as it should.
func (o Outcome) Failed() bool { return o >= ServerFault }

var outcomes = [wire.NumKinds]Outcome{
	wire.Value: Hit, wire.Header: Okay, wire.Miss: Miss, wire.End: Miss, wire.Stored: Stored, wire.NotStored: NotStored,
	wire.Exists: Exists, wire.NotFound: NotFound, wire.Error: ClientFault, wire.ClientError: ClientFault, wire.ServerError: ServerFault,
}

// OutcomeOf is the outcome of a command that gets a reply of kind k.
func OutcomeOf(k wire.Kind) Outcome { return outcomes[k] }

// LostCount is why increments that waited are lost.
type LostCount uint8

// The reasons.
const (
	LostMissing     LostCount = iota // the counter is gone, or is no number
	LostUnreachable                  // the server could not be asked for too long
	LostUnsure                       // the server did not answer: they may have counted
	LostOverwritten                  // a set or delete came before they were told: nothing is missing
	NumLost
)

func (l LostCount) String() string {
	return [NumLost]string{"missing", "unreachable", "unsure", "overwritten"}[l]
}

// Buffered is what has become of increments that waited.
type Buffered struct {
	Increments uint64          // commands that waited
	Flushes    uint64          // requests that carried them
	Flushed    uint64          // commands that these carried
	Lost       [NumLost]uint64 // sums of increments, by why
}

// Marks counts what became of the marks of copies.
type Marks struct {
	Made      uint64 // by commands and repairs of this process
	Met       uint64 // found in the place of a value: somebody is at work there, or has died at it
	Disturbed uint64 // that were gone when they were to be ended: all began again, or was given up
}

// Counters is what one engine has counted since it started.
type Counters struct {
	RouteCounters                        // of commands that belong to no route, and of routes that are no more
	Latency       [wire.NumOps]Histogram // from the request to its answer, by command

	Repairs, RepairsDropped uint64 // of copies, key by key; those that were not made, because too many were to be made
	Marks                   Marks
	Refilled                uint64 // keys that were copied to servers that had come back empty

	Wakeups, Reads, Writes uint64 // of the driver: reads that brought bytes, writes that took some

	Accepted            uint64 // clients
	Refused             uint64 // clients over limits.clients
	TooLate             uint64 // clients reset: Ringside stops, or the listener is no more
	Unaccepted          uint64 // times that no client could be accepted: descriptors or memory of the system are used up
	ClientIn, ClientOut uint64 // bytes from clients, to clients
	LoginsFailed        uint64 // wrong users or passwords
	Closed
	CountersMade uint64 // that were missing, by autocreate

	Buffer Buffered

	NoMemory uint64 // data blocks refused by limits.memory
	Doubts   uint64 // server connections aborted because nobody could tell any more whose answer came
}

// Closed counts the clients that Ringside closed, by reason.
type Closed struct {
	IdleClosed       uint64 // limits.idle
	UnfinishedClosed uint64 // limits.unfinished
	LoginsLate       uint64 // they had not said in time who they are
	OutputClosed     uint64 // limits.output_hard
	MemoryClosed     uint64 // limits.memory
	CutOff           uint64 // a server went away in the middle of a value
}

// ServerCounters is what one engine has counted of one server.
type ServerCounters struct {
	Requests        uint64 // handed to a connection
	Failed          uint64 // of the requests: those that got no answer
	TimedOut        uint64 // of the failed: not answered in time
	Refused         uint64 // not handed on: the server was down
	Crowded         uint64 // not handed on: the queue was full
	Shed            uint64 // not handed on, or not sent: limits.memory was reached
	LateDeletes     uint64 // deletes behind mutations that had failed and may run late
	LateDeletesLost uint64 // of the late deletes: those that were not answered
	Overridden      uint64 // not handed on: a person has drained it or taken it down

	Dials, Lost, ClosedIdle, WentDown uint64    // attempts to connect; connections lost with requests in flight, and without; outages
	BytesIn, BytesOut                 uint64    // from the server, to the server
	Latency                           Histogram // of answered requests
}

// Observe counts an answer that took ns nanoseconds.
func (c *ServerCounters) Observe(ns int64) { c.Latency.Observe(ns) }

// Histogram counts durations in buckets whose bounds double, each doubling
// cut in four: 19 % wide at most, from 1 µs to 17 s.
type Histogram struct {
	Buckets [24*4 + 1]uint64
	Sum     uint64 // nanoseconds
}

// Observe counts one duration in nanoseconds.
func (h *Histogram) Observe(ns int64) {
	if ns < 0 {
		ns = 0
	}
	h.Sum += uint64(ns)
	h.Buckets[bucket(uint64(ns))]++
}

// ObserveSeveral counts one duration n times.
func (h *Histogram) ObserveSeveral(n int, ns int64) {
	h.Sum += uint64(n) * uint64(max(ns, 0))
	h.Buckets[bucket(uint64(max(ns, 0)))] += uint64(n)
}

func bucket(ns uint64) int {
	us4 := ns / 256 // quarters of about a microsecond
	if us4 < 4 {
		return 0
	}
	exp := bits.Len64(us4) - 3
	i := exp*4 + int(us4>>exp) - 4 + 1
	return min(i, len(Histogram{}.Buckets)-1)
}

// Bound is the upper bound of bucket i in nanoseconds.
func Bound(i int) uint64 {
	if i == 0 {
		return 4 * 256
	}
	i--
	return uint64(i%4+5) << (i / 4) * 256
}

// Count is the number of durations.
func (h *Histogram) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// Add counts what o has counted too.
func (h *Histogram) Add(o *Histogram) {
	h.Sum += o.Sum
	for i, n := range o.Buckets {
		h.Buckets[i] += n
	}
}

// Snapshot is a copy of what the engines of a process have counted, added up.
type Snapshot struct {
	Counters                            // with those of all routes
	Servers  map[string]*ServerSnapshot // by network and address
	Routes   map[RouteName]*RouteCounters
	Members  []MemberSnapshot   // of the pools that have a keeper
	Events   []MemberEvents     // what keepers have decided so far
	Rolls    []Roll             // of the pools that have a keeper
	Lacks    map[[2]string]Lack // by pool and server: what is missing on those that keep copies
	Clients  int                // connected
	InFlight int                // commands without an answer

	BufferKeys    int    // counters of which increments wait, or may
	BufferPending uint64 // their sum

	Parked int   // of them: writes that wait for a server's next phase
	Lines  int   // keys of several copies that are being written or repaired
	Memory int64 // bytes of buffers in use
	Kept   int64 // of that, for reuse
}

// Lack is what is missing on a server that keeps copies, as far as this process knows.
type Lack struct {
	Filling bool   // it has come back empty, and is not filled yet
	Copied  uint64 // keys that it has been given since
	Missed  int    // keys of which it has missed a write
	Waiting int    // keys that are to be deleted there, or copied to it, when it answers
	Flush   bool   // it has missed more writes than are remembered: it is flushed before it is read
}

// ServerSnapshot is one server as the engines see it.
type ServerSnapshot struct {
	ServerCounters
	Target    table.Target
	Known     bool   // it has answered, to some engine
	Down      int    // engines that hold it for down
	Why       string // what it is down for
	Age       int64  // nanoseconds since the first of them held it for down; if none does, since the last change
	Version   string // the last it told
	Conns     int    // open connections
	Waiting   int    // requests without an answer
	Timeouts  int    // requests in a row without an answer
	Lingering int    // further connections, which wait for late answers only
}

// Add counts what o has counted too.
func (into *Counters) Add(o *Counters) {
	into.RouteCounters.Add(&o.RouteCounters)
	for op := range o.Latency {
		into.Latency[op].Add(&o.Latency[op])
	}
	into.Repairs += o.Repairs
	into.RepairsDropped += o.RepairsDropped
	into.Marks.Made += o.Marks.Made
	into.Marks.Met += o.Marks.Met
	into.Marks.Disturbed += o.Marks.Disturbed
	into.Refilled += o.Refilled
	into.Wakeups += o.Wakeups
	into.Reads += o.Reads
	into.Writes += o.Writes
	into.Accepted += o.Accepted
	into.Refused += o.Refused
	into.TooLate += o.TooLate
	into.Unaccepted += o.Unaccepted
	into.ClientIn += o.ClientIn
	into.ClientOut += o.ClientOut
	into.IdleClosed += o.IdleClosed
	into.UnfinishedClosed += o.UnfinishedClosed
	into.LoginsFailed += o.LoginsFailed
	into.LoginsLate += o.LoginsLate
	into.OutputClosed += o.OutputClosed
	into.MemoryClosed += o.MemoryClosed
	into.CutOff += o.CutOff
	into.NoMemory += o.NoMemory
	into.CountersMade += o.CountersMade
	into.Buffer.Increments += o.Buffer.Increments
	into.Buffer.Flushes += o.Buffer.Flushes
	into.Buffer.Flushed += o.Buffer.Flushed
	for i, n := range o.Buffer.Lost {
		into.Buffer.Lost[i] += n
	}
	into.Doubts += o.Doubts
}

// Add counts what o has counted too.
func (into *ServerCounters) Add(o *ServerCounters) {
	into.Requests += o.Requests
	into.Failed += o.Failed
	into.TimedOut += o.TimedOut
	into.Refused += o.Refused
	into.Crowded += o.Crowded
	into.Shed += o.Shed
	into.LateDeletes += o.LateDeletes
	into.LateDeletesLost += o.LateDeletesLost
	into.Overridden += o.Overridden
	into.Dials += o.Dials
	into.Lost += o.Lost
	into.ClosedIdle += o.ClosedIdle
	into.WentDown += o.WentDown
	into.BytesIn += o.BytesIn
	into.BytesOut += o.BytesOut
	into.Latency.Add(&o.Latency)
}
