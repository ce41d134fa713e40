// Package near keeps values in Ringside for a short time (the near cache), so that reads of a hot
// key cause only a few requests a second to its server.
//
// A route with the setting near has a Store on each loop. The Store keeps the values that reads of
// the route have found, and serves them to later reads until they are ttl old. The age counts from
// the time when the read arrived that fetched the value, which is before it was sent. So a value
// that is served was replaced at most ttl ago.
//
//	            a read of a value to keep                     reply to the read
//	absent ─────────────────────────────────► being fetched ─────────────────────► kept
//	  ▲                                            │ a write of the key passed,       │
//	  ├────────────────────────────────────────────┘ or no value was found            │
//	  │                                                                               │ three quarters of ttl
//	  │              ttl, a write of the key, no room                                 ▼
//	  └──────────────────────────────────────────────────────────────── kept and being fetched
//
// One read at a time refreshes a kept value. All other reads get the kept value while it is
// refreshed. If the value expires before the refresh has its reply, they wait for that reply,
// provided that the refreshing read has only this key. So a key that is read continuously costs its
// server one read every three quarters of ttl from each loop, however slow the server is. If the
// reply contains no value, the value becomes absent, and all waiting reads ask the server.
//
// # Writes
//
// A read that arrives after a write through this process must see the write, on any loop. So all
// loops share one table of numbers (Marks). A key belongs to one slot of the table, by its hash. A
// write of the key changes the number of its slot when it starts and when it has its reply. A value
// is kept with the number that the slot of its key had when the value was requested. It is served
// only while the slot still has that number:
//
//	write starts          later reads do not get values kept before
//	write is in flight    no value is fetched to be kept: the server could handle the read before the
//	                      write, on another connection, and its reply could arrive after the write's
//	write has its reply   a value requested before is not kept if it arrives now
//
// A write costs two additions to a shared word, and a read of a kept value costs two loads. There
// are 65,536 slots; a write of a key drops the values of all keys in its slot. A flush_all is a
// write of all keys.
//
// A write that times out may still run later. Reads see its effect at most ttl after that. The same
// is true for writes that do not pass through this process.
//
// # Limits
//
// A Store is limited in bytes, and its memory counts against limits.memory. If that is short, all
// values are dropped. The oldest value is dropped first because it has the least time left.
package near
