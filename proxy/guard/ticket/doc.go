// Package ticket remembers what clients that were told a miss are bound to.
//
// Such a client is expected to set the value. Its set is stored only over the item that
// its miss has left or seen, which a ticket knows by its cas. A table has the tickets of
// one loop: by key, by client and by age.
package ticket

// The package's manual.
