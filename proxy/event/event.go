// Package event names the log records that the dashboard and ringside top describe in their own
// words.
//
// A record carries its Event as an attribute. Handlers of log/slog leave that attribute out of
// the log, so the text of a record can change without a change of its description.
package event

import "log/slog"

// Event is what a log record reports.
type Event uint8

// The events. Each comment ends with the attributes of the log record that the event's description
// uses.
const (
	Other            Event = iota // any other record: its message is the description
	Hidden                        // not shown
	ServerPhase                   // failover changed the phase of a server: server, from, to, why
	PoolState                     // failover of a whole pool changed: pool, from, to, why
	EjectedElsewhere              // another instance has a pool (other) that ejects a server, and this instance has no such pool that ejects it: server, other, why
	EjectedNowhere                // EjectedElsewhere has ended: server, other
	KeptElsewhere                 // another instance has a server in a pool (other) that does not eject it, and a pool of this instance ejects it: server, other, why
	KeptNowhere                   // KeptElsewhere has ended: server, other
	Drained                       // an operator drained a server: server
	TakenDown                     // an operator took a server down: server
	Restored                      // an operator restored a server: server
	ConnectionLost                // a server closed a connection with requests in flight: server, requests, why
	ResyncDone                    // a server that rejoined has its replicas again: server, keys
	ResyncFailed                  // a server that rejoined cannot be filled now: server, why
	TagInvalidated                // tag, count
	ServerDown                    // a server does not reply: server, why
	ServerUp                      // a server that was down replies again: server, out
	Started                       // this process has started: version, file
	SlowCommand                   // command, key, keys, server, phase, error, ms
	TraceStarted                  // keys, file
	TraceStopped                  // keys, error
	FaultInjected                 // server, kind, for
	ConfigRejected                // error
	ConfigAdopted                 // generation, file
)

// Attr returns the attribute by which a log record carries e.
func (e Event) Attr() slog.Attr { return slog.Any("event", e) }

// LogValue returns an empty group, which handlers leave out.
func (Event) LogValue() slog.Value { return slog.GroupValue() }

// Of returns the Event that v carries, if it carries one.
func Of(v slog.Value) (e Event, ok bool) {
	if v.Kind() == slog.KindLogValuer {
		e, ok = v.Any().(Event)
	}
	return e, ok
}
