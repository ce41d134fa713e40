package stats

// What an engine counts. Plain numbers, written by one goroutine; others read
// a copy that the engine makes for them between two wakeups.

import (
	"math/bits"
	"reflect"
	"time"

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

// MarkEvent is what became of a mark of copies.
type MarkEvent uint8

// The events.
const (
	MarkMade      MarkEvent = iota // by a command or a repair of this process
	MarkLeft                       // sent behind a set that has timed out; nobody hears whether it has replaced something
	MarkMet                        // found in the place of a value: somebody is at work there, or has died at it
	MarkTaken                      // met, and a value put in its place: its owner was given time
	MarkReplaced                   // met and changed by what did not see it: a fresh one is in its place
	MarkDisturbed                  // gone when it was to be ended: all began again, or was given up
	NumMarkEvents
)

func (m MarkEvent) String() string {
	return [NumMarkEvents]string{"made", "left", "met", "taken", "replaced", "disturbed"}[m]
}

// MarkUser is what has to do with a mark.
type MarkUser uint8

// The users.
const (
	MarkOther MarkUser = iota // any other command
	MarkDelete
	MarkAdd
	MarkRepair // a repair, a resync, a move to another server
	NumMarkUsers
)

func (u MarkUser) String() string {
	return [NumMarkUsers]string{"other", "delete", "add", "repair"}[u]
}

// Marks counts what became of the marks of copies.
type Marks [NumMarkEvents][NumMarkUsers]uint64

// MaxDeleteRounds is how many rounds of marks a delete makes at most.
const MaxDeleteRounds = 3

// Counters is what one engine has counted since it started.
type Counters struct {
	RouteCounters                        // of commands that belong to no route, and of routes that are no more
	Latency       [wire.NumOps]Histogram // from the request to its answer, by command

	Repairs, RepairsDropped uint64 // copies of single keys: begun; given up, because there were too many or they failed again and again
	Marks                   Marks
	DeleteRounds            [MaxDeleteRounds]uint64 // deletes on copies by how many rounds they took, less one
	Refilled                uint64                  // keys that were copied to servers that had come back empty

	Wakeups, Reads, Writes uint64 // of the driver; only reads that brought bytes, and writes that took some

	Accepted            uint64 // clients
	Refused             uint64 // clients over limits.clients
	TooLate             uint64 // clients reset: Ringside stops, or the listener is no more
	Unaccepted          uint64 // times that no client could be accepted: descriptors or memory of the system are used up
	ClientIn, ClientOut uint64 // bytes from clients, to clients
	LoginsFailed        uint64 // wrong users or passwords
	LoginsClosed        uint64 // clients closed that gave too many of these
	Closed
	CountersMade uint64 // that were missing, by autocreate

	Buffer Buffered

	NoMemory uint64 // data blocks refused by limits.memory
	TooLarge uint64 // data blocks refused by limits.value
	Desyncs  uint64 // server connections aborted because nobody could tell any more whose answer came

	ReplyFaults uint64 // commands that would have ended without a reply, or got more than one: bugs
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

	DeadByPing    uint64 // connections that a ping on an idle one found dead
	DeadByRequest uint64 // connections that the first request behind a quiet period found dead
	ReadsResent   uint64 // plain reads that were sent again in place of one on a dead connection

	Dials, Lost, ClosedIdle, WentDown uint64    // attempts to connect; connections lost with requests in flight; without any; outages
	BytesIn, BytesOut                 uint64    // from the server, to the server
	Latency                           Histogram // of answered requests
}

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
func (h *Histogram) Add(o *Histogram) { sumUp(h, o) }

// Snapshot is what the engines of a process have counted, added up.
type Snapshot struct {
	Counters                            // with those of all routes
	Servers  map[string]*ServerSnapshot // by network and address
	Routes   map[RouteName]*RouteCounters
	Members  []MemberSnapshot   // of the pools that have a keeper
	Events   []MemberEvents     // what keepers have decided so far
	Rolls    []Roll             // of the pools that have a keeper
	Shared   []Shared           // servers of the pools that other Ringsides eject
	Lacks    map[[2]string]Lack // by pool and server: what is missing on those that keep copies
	Clients  int                // connected
	InFlight int                // commands without an answer

	Moving    bool          // keys of several copies go to other servers by the last table, or will
	Unsettled time.Duration // no other table may come yet, for the sake of keys that the last has given to other servers: look again then

	BufferKeys    int    // counters of which increments wait, or may
	BufferPending uint64 // their sum

	Parked int   // commands that are parked: see package task
	Lines  int   // lines in which commands follow each other on a key: see there, too
	Memory int64 // bytes of buffers in use
	Kept   int64 // bytes of Memory that are kept for reuse
}

// Shared is a server of a pool that another Ringside ejects by a pool of its own, which this
// Ringside does not have, or which ejects nothing here.
type Shared struct {
	Pool, Server string // of this Ringside
	Other        string // the other Ringside's pool
	Keeps        bool   // that pool does not eject the server, and this Ringside does
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
func (into *Counters) Add(o *Counters) { sumUp(into, o) }

// Add counts what o has counted too.
func (into *ServerCounters) Add(o *ServerCounters) { sumUp(into, o) }

// sumUp adds every number of o to that of into, which points to the same type: so none that
// is new can be left out. What a pointer leads to is added up by who owns it. It takes some
// 20 µs for all of an engine.
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
		sums := into.Slice(0, into.Len()).Interface().([]uint64) // histograms are nearly all there is to add
		for i, n := range o.Slice(0, o.Len()).Interface().([]uint64) {
			sums[i] += n
		}
	case reflect.Pointer:
	default:
		panic("stats: counters are uint64, and nothing adds up a " + into.Type().String())
	}
}
