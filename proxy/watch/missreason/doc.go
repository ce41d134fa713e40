// Package missreason determines why a read has missed. A Recorder remembers the last operation on some of
// the keys, and derives the reason from that.
//
//	Never        the key was not set, as far back as the Recorder remembers (Since)
//	Expired      the time to live of the value was over
//	Deleted      a client deleted the key
//	Flushed      the server of the key was flushed
//	Out          the server was ejected, and returned empty; or a substitute server was used
//	Moved        a reload moved the key to another server
//	Invalidated  one of the tags of the value was invalidated: the caller knows that
//	Evicted      none of these, and the server's eviction counter has grown since the store
//	Unsure       none of these: the reason is not known
//
// If several reasons apply, the earliest one is reported. Requests that bypass Ringside are not
// seen. A key that another client sets directly is Never. A key that another client deletes directly is
// Unsure, or Evicted if the server evicts. A flush that bypasses Ringside is detected by the
// server's counter.
//
// The counters of a server are read when values are missing there for an unknown cause, at most
// every five seconds: see CountersToRead. So the first such misses are Unsure, until the server has
// sent its counters twice.
//
// # Sources
//
// The package is notified of replies, not of requests: of misses, stores and deletes. So a read
// that hits costs nothing, and only what really happened is recorded.
//
// A request to one server is reported when its reply is paired with it, and a command of
// several requests when its client gets the reply. The engine reports the ejection of a server
// and a completed flush_all. At the end of a multi-key read, the keys without a VALUE
// are reported as misses.
//
// # Sampled keys
//
// A key is in the sample if its hash is below a limit. So all operations on a sampled key are
// seen. If requests were sampled, only some operations on a key would be seen. Any other key costs its hash, an atomic load
// and a comparison. The limit adapts. It is halved when there are more than perSecond
// operations a second, and when the Recorder is half full of keys of the last hour. If the keys are older,
// the older half of them is dropped instead. It is doubled when there are few operations and
// there is much space. For a key that was not in the sample before, only the operations since then
// are known. If they are not enough to find the reason, the reason is Unsure.
//
// There is one Recorder for the process. A miss of one client and the set of another often use two
// loops, and a table per loop would report Never. Its lock is taken only some thousand times a second,
// because few keys are sampled.
//
//	memory   2 MiB: 65,536 entries of 32 bytes, at most half of them used
//	errors   a full bucket of eight drops its oldest key: at most 3 keys in 100,
//	         when half of all entries are used; and keys with hashes that agree in 45 bits
//
// # The value of the cache
//
// Stored returns how long ago the key missed first: that is how long the application took to
// rebuild the value. Misses that are more than a minute old do not count, because the set then
// has another cause.
//
// A Book adds up these times, like the reasons, by route and by prefix. The prefix of a key ends with
// its first colon. Recent counts are halved after a minute. Counts of sampled keys are scaled up to all
// keys.
//
//	P50, P99   seconds from a miss to its set, of the last 128
//	Cost       sets a second times their seconds: the load on the origin because of misses
//	saved      hits a second times the mean: the additional load without the cache
//
// The 64 prefixes with the highest cost are kept, with Space-Saving: a new prefix replaces the
// one with the lowest cost, and inherits that cost as its possible error, Off.
package missreason

// The package documentation.
