package watch

// A fast lookup of how often a key is requested, at least.

import "time"

// heat is the request rate of a key.
type heat struct {
	hash uint64
	rate float64 // requests per second, lower bound
	at   int64   // when it was computed, on the loop's clock
}

// heed records the request rate of the key with that hash.
func (w *Watch) heed(hash uint64, c *Counts, now int64) {
	rate := max(c.Likely()-c.MoreOrLess(), 0) / max(w.span/float64(time.Second), 1)
	h := &w.hot[hash%uint64(len(w.hot))]
	if h.hash == hash || h.rate <= rate || now-h.at > int64(window) {
		*h = heat{hash, rate, now}
	}
}

// Rate returns a lower bound of the recent requests per second of the key with that hash; 0:
// not known. It looks at a single slot. If two keys share a slot, only the one with more
// requests is known.
func (w *Watch) Rate(hash uint64, now int64) float64 {
	h := &w.hot[hash%uint64(len(w.hot))]
	if h.hash != hash || now-h.at > int64(window) {
		return 0
	}
	return h.rate
}
