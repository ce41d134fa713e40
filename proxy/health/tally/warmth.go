package tally

// How warm a server is that has come back empty.

const (
	warmAsks = 100 // reads that say how warm a server is
	warmHits = 90  // percent of them it must answer itself
)

// Warmth follows the reads at a WARM server.
type Warmth struct {
	Enough     bool   // it answers most of them itself
	asks, hits uint64 // at the last look
	at         int64  // 0: there was none
}

// Count takes the running totals of reads, and of those that the server could answer.
func (w *Warmth) Count(asks, hits uint64, now int64) {
	switch {
	case w.at == 0:
	case asks-w.asks < warmAsks:
		return
	case (hits-w.hits)*100 >= (asks-w.asks)*warmHits:
		w.Enough = true
	}
	w.asks, w.hits, w.at = asks, hits, now
}
