package watch

// How often a key is surely asked for, to be known at once.

import "time"

// heat is how often a key is asked for.
type heat struct {
	hash uint64
	rate float64 // requests a second, at least
	at   int64   // when that was found, on the loop's clock
}

// heed notes how often the key with that hash is asked for.
func (w *Watch) heed(hash uint64, c *Counts, now int64) {
	rate := max(c.Likely()-c.MoreOrLess(), 0) / max(w.span/float64(time.Second), 1)
	h := &w.hot[hash%uint64(len(w.hot))]
	if h.hash == hash || h.rate <= rate || now-h.at > int64(window) {
		*h = heat{hash, rate, now}
	}
}

// Rate is how often the key with that hash is asked for in a second, at least, as far
// as was seen lately. It costs a look at one place, which two keys may share: then only
// the one counts that is asked for more.
func (w *Watch) Rate(hash uint64, now int64) float64 {
	h := &w.hot[hash%uint64(len(w.hot))]
	if h.hash != hash || now-h.at > int64(window) {
		return 0
	}
	return h.rate
}
