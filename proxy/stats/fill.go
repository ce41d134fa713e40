package stats

// This file has the counters of pools that fill from another pool (the setting fill_from).

// FillCounters counts the reads of the source of a pool, since the start of the process.
type FillCounters struct {
	Hits    uint64 // the source had the value
	Misses  uint64 // the source had no value
	Failed  uint64 // the source did not reply, or rejected the request
	Limited uint64 // the source was not asked, because of the rate
	Copied  uint64 // keys that were copied to the pool after a plain read
}

// Add adds the numbers of n.
func (c *FillCounters) Add(n *FillCounters) { sumUp(c, n) }

// Fill returns the counters of a pool that fills. It creates them if there are none.
func (s *Snapshot) Fill(pool string) *FillCounters { return Entry(&s.Fills, pool) }

// Metrics of each pool with fill_from.
var (
	fillReads = PerPool.Counter("fill_reads_total",
		"Reads of keys that were missing in a pool with fill_from, by the reply of the source. hit: the source had the value. miss: it had none. "+
			"failed: it did not reply, or rejected the read. limited: it was not asked, because of fill_from.rate. Absent without fill_from.",
		"result")
	fillCopies = PerPool.Counter("fill_copies_total",
		"Keys that were copied from the source to a pool with fill_from after a plain read. Absent without fill_from.")
)

// Figures returns the numbers of a pool that fills. The other label of their metrics is the pool.
func (c *FillCounters) Figures() []Figure {
	return []Figure{
		{fillReads, "hit", "", c.Hits},
		{fillReads, "miss", "", c.Misses},
		{fillReads, "failed", "", c.Failed},
		{fillReads, "limited", "", c.Limited},
		{fillCopies, "", "", c.Copied},
	}
}
