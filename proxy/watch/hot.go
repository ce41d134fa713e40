package watch

// This file has a fast way to find out how often a key is requested. The result is a lower bound.

import "time"

// heat is what is known about the request rate of one key.
type heat struct {
	hash uint64
	rate float64 // lower bound of the requests per second
	at   int64   // time at which the rate was computed, on the loop's clock
}

// heed records the request rate of a key from its counts c. hash is the hash of the key.
func (w *Watch) heed(hash uint64, c *Counts, now int64) {
	rate := max(c.Likely()-c.MoreOrLess(), 0) / max(w.span/float64(time.Second), 1)
	h := &w.hot[hash%uint64(len(w.hot))]
	if h.hash == hash || h.rate <= rate || now-h.at > int64(window) {
		*h = heat{hash, rate, now}
	}
}

// Rate returns a lower bound of the recent requests per second for the key with the given hash; 0:
// not known. Each key has one slot of a table. If two keys share a slot, only the one with more
// requests is known.
func (w *Watch) Rate(hash uint64, now int64) float64 {
	h := &w.hot[hash%uint64(len(w.hot))]
	if h.hash != hash || now-h.at > int64(window) {
		return 0
	}
	return h.rate
}
