// Package ticket remembers what clients that were told a miss are bound to.
//
// Such a client is expected to set the value. Its set is stored only over the item that
// its miss has left or seen, which a ticket knows by the item's cas. So a set that comes
// too late, behind a delete or another value, stores nothing.
//
// A ticket begins with a miss, and ends in one of these ways:
//
//	granted ─► its client sets the key (Take)             the set goes out bound to Cas; filled, or too late
//	        ─► its client misses the key again (Grant)    the new ticket takes its place
//	        ─► its client is gone (Leave)                 what it has won is given back
//	        ─► the table is full (Grant)                  the oldest ticket goes, and is counted as forgotten
//	        ─► LeaseMax has passed, and the set may come  it is not looked for any more (Owed)
//	           on another connection
//
// Void: nothing is known of the item, so the set is not stored. Win: it is this client
// that memcached has told to rebuild; others see a miss only when they have waited in
// vain. Doubtful: another client of the same pool of connections may have used it up.
//
// A Table has the tickets of one loop: by key, by client and by age. It does not ask
// servers, and does not know whether a set has come: package guard does.
package ticket
