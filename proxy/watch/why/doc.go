// Package why says why a read has found nothing: a Table remembers of some keys what
// was last done to them, and judges by it.
//
//	Never        it was not set here, as long as the Table reaches back: Since
//	Expired      its time was over
//	Deleted      somebody deleted it
//	Flushed      its server was flushed
//	Out          its server was out, and came back empty; or another stands in for it
//	Moved        a reload gave it to another server
//	Invalidated  one of its tags was: the caller knows that
//	Evicted      none of these, and the server's counter of evictions has moved since
//	Unsure       none of these: no cause is known
//
// Where several fit, it is the one that came first. What goes past Ringside is not
// seen: a key that another client sets directly is Never, one that it deletes Unsure, or
// Evicted where the server evicts. A flush past Ringside is seen by the server's counter.
//
// A server is asked for its counters when values are missing there without a known cause, at
// most every five seconds: see Doubtful. So the first such misses are Unsure, until it has
// answered twice.
//
// # Where it listens
//
// It is told of answers, not of requests: of misses, of what was stored, of what was
// deleted. So a read that finds its value costs nothing at all, and what is told is
// what has happened, not what somebody wanted.
//
// A request that goes to one server is told where its answer is paired with it, a
// command of several requests where its client has its answer; a server that goes out
// and a flush_all that it has carried out, where the engine hears of them. Of the keys
// of a read of many, those are told that had no VALUE when it ended.
//
// # Which keys
//
// Keys are chosen by their hash: those whose hash is below a limit. So everything
// that happens to a chosen key is seen, which a draw of requests would not give, and
// any other costs its hash, an atomic load and a compare. The limit adapts. It is halved when
// there is more to do than perSecond, and when the Table is half full of keys of
// the last hour; if they are older, the older half of them is forgotten instead. It is
// doubled when there is little to do and much room. A key that was not chosen before
// is judged only by what was seen of it since: without that the answer is Unsure.
//
// A Table is one for the process. A client's read and the set of another often come
// by two loops, and a table of each loop would call that Never. It is locked: of the
// few keys that are chosen, some thousand times a second.
//
//	memory   2 MiB: 65,536 places of 32 bytes, at most half of them used
//	wrong    a bucket of eight that is full forgets its oldest: 3 keys in 100 at worst,
//	         when half of all is used; and keys whose hashes agree in 45 bits
//
// # What the cache is worth
//
// Stored says how long ago the read was that first missed the key: that long the
// application has taken to make the value anew. What was missed more than a minute
// ago is not counted, since that set has another cause.
//
// A Book adds that up by route and by prefix, which ends with a key's first colon, beside
// the reasons. What was counted lately counts half after a minute, and what was counted
// of chosen keys stands for the others.
//
//	P50, P99   seconds from a miss to its set, of the last 128
//	Cost       sets a second times their seconds: so much of the origin is at work on misses
//	saved      hits a second times the mean: so much more would be, without the cache
//
// Of 64 prefixes those are kept that cost most, as Space-Saving does it: one that is new has
// the place of the one that has cost least, and what that has cost, as what it may be
// too high by, Off.
package why

// The package's manual.
