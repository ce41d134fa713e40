// Package watch samples the keys that clients request, and the outcomes of these requests.
//
// A loop samples some of its requests at random: about a thousand a second, whatever the load.
// So the cost is constant, and a request that is not sampled costs a decrement and a branch.
// For a sampled request the key is recorded when it is added to a server's queue, and the
// outcome when the reply arrives. A SampleReceiver is placed between the connection and the receiver of
// the reply.
//
//	request ► Left-- ► Sample: a SampleReceiver in front of the receiver ► reply ► sketches
//
// # Hot keys
//
// The most requested keys are found with Space-Saving (Metwally, Agrawal, El Abbadi 2005). It
// uses a table of fixed size. A new key replaces the key with the lowest count, and inherits
// that count as its possible error. Counts are halved every ten seconds, so they follow the
// present.
//
//	keys       512 per loop; a new key costs a scan of all of them: some 0.3 µs
//	prefixes   64 per loop: a key's prefix ends with its first colon; all keys without a colon share one
//
// MoreOrLess is the possible error of a key's count. It has two parts: what the table has
// forgotten, and three standard deviations of the sampling. The tables of the loops are added
// up. If a key is missing in a full table, it may have had as many requests in that loop as the
// key with the lowest count of the table.
//
// A command that needs several requests to servers is sampled when it ends.
//
// # Traces
//
// An operator may trace the keys that match a Pattern. A loop then examines every request, most
// of them only to compare the key. The outcome of a request is one letter:
//
//	H  a read found the key                  M  a read missed
//	S  a read found a stale value (flag X)   R  a read: the client must rebuild the value (flag W)
//	L  add stored: a lock was acquired       l  add did not store: another client has the lock
//	W  set, replace, cas, append or prepend stored    w  one of these did not store
//	U  a lock was deleted                    D  another key was deleted    d  there was nothing to delete
//	I  incr, decr                            T  touch, gat            E  the request failed, or was invalid
//
// The key of a lock is Lock followed by the key that it locks: a pattern that matches one also
// matches the other. Requests that bypass Ringside are not seen. A loop keeps up to 4,096
// events until they are read; further ones are counted and dropped. Values are never kept.
//
// # Limits
//
// A request that is not sent to any server is not seen. That is the case if the server is down or
// the key has no route.
package watch

// The package documentation.
