// Package event names the log records that the dashboard and ringside top describe in their own
// words.
//
// A record carries its Event as an attribute. Handlers of log/slog leave that attribute out of
// the log, so the text of a record can change without a change of its description.
package event

import "log/slog"

// Event is what a log record reports.
type Event uint8

// The events. Each comment lists the attributes of the log record that the event's description uses.
const (
	Other            Event = iota // any log record without an event of its own: its message is the description
	Hidden                        // the dashboard and ringside top do not show the log record
	ServerPhase                   // the phase of a server has changed; attributes: server, from, to, why, and mode if it is fail_fast
	PoolState                     // the failover state of a whole pool has changed; attributes: pool, from, to, why, and mode if it is fail_fast
	EjectedElsewhere              // another instance ejects the server in its pool `other`, and this instance does not eject it in a pool of that name; attributes: server, other, why
	EjectedNowhere                // no other instance ejects the server in its pool `other` any more: the end of EjectedElsewhere; attributes: server, other
	KeptElsewhere                 // another instance has a server in a pool (other) that does not eject the server, and a pool of this instance does; attributes: server, other, why
	KeptNowhere                   // no other instance has a server in a pool (other) that does not eject it any more: the end of KeptElsewhere; attributes: server, other
	Drained                       // an operator drained a server; attribute: server
	TakenDown                     // an operator took a server down; attribute: server
	Restored                      // an operator restored a server; attribute: server
	ConnectionLost                // a server closed a connection with requests in flight; attributes: server, requests, why
	ResyncDone                    // a server that rejoined has its replicas again; attributes: server, keys
	ResyncFailed                  // a server that rejoined cannot be filled with its replicas now; attributes: server, why
	KeysMoved                     // a change of the servers of a pool has moved all keys; attributes: pool, keys, seconds
	KeysLost                      // the same, but keys are lost; attributes: pool, keys, lost, old_servers_out, seconds
	KeysLeft                      // the same, but an old server was out, so its keys have not moved; attributes: pool, keys, old_servers_out, seconds
	TagInvalidated                // a tag was invalidated; attributes: tag, count
	ServerDown                    // a server does not reply; attributes: server, why
	ServerUp                      // a server that was down replies again; attributes: server, out
	Started                       // this process has started; attributes: version, file
	SlowCommand                   // a command took long; attributes: command, key, keys, server, phase, error, ms
	TraceStarted                  // a trace has started; attributes: keys, file
	TraceStopped                  // a trace has stopped because of an error; attributes: keys, error
	FaultInjected                 // an operator has set a fault of a server; attributes: server, kind, for
	ConfigRejected                // a reload has failed, because the configuration is invalid; attribute: error
	ConfigAdopted                 // a reload has adopted a configuration; attributes: generation, file
)

// Attr returns the attribute by which a log record carries e.
func (e Event) Attr() slog.Attr { return slog.Any("event", e) }

// LogValue returns an empty group: the handlers of log/slog leave out an attribute with this value.
func (Event) LogValue() slog.Value { return slog.GroupValue() }

// Of returns the Event in v, the value of a log record's attribute. ok is false if v has no Event.
func Of(v slog.Value) (e Event, ok bool) {
	if v.Kind() == slog.KindLogValuer {
		e, ok = v.Any().(Event)
	}
	return e, ok
}
