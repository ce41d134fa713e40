package health

// This file measures the hit rate of a server that has rejoined empty.

const (
	warmAsks = 100 // minimum number of reads for a measurement
	warmHits = 90  // percentage of hits that makes a server warm
)

// warmth measures the reads of a WARM server.
type warmth struct {
	Enough     bool   // most reads of the server were hits in a measurement
	asks, hits uint64 // running totals of reads and hits at the last measurement
	at         int64  // time of the last measurement; 0: none
}

// Count updates the measurement from the running totals: asks is the number of reads,
// and hits the number of reads with a hit.
func (w *warmth) Count(asks, hits uint64, now int64) {
	switch {
	case w.at == 0:
	case asks-w.asks < warmAsks:
		return
	case (hits-w.hits)*100 >= (asks-w.asks)*warmHits:
		w.Enough = true
	}
	w.asks, w.hits, w.at = asks, hits, now
}
