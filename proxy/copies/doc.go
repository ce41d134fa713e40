// Package copies keeps several copies of a key alike.
//
// Package replicate says which copies a command goes to and whose answer counts;
// this package asks it, carries out what it says (copies.go, requests.go), and
// knows how far each member can be trusted (trust.go). What it knows beyond one
// command is in a ledger by pool, which outlives reloads:
//
//	a member        is                                             until
//	dirty           behind, for keys that are remembered           each is repaired: deleted there (stale.go), then copied
//	overfull        behind, for more keys than can be remembered   it has been emptied: then it is lacking
//	lacking         empty: flushed on its way back, or restarted   it is filled: the others list their keys (resync.go)
//	unidentified    perhaps started anew: it has a new connection  it has said since when it runs
//
// Commands on a key, and repairs of it, are led on one loop of the process, one
// write at a time. Repairs are bounded in rate (repair_rate) and in number, and
// are dropped rather than queued without end: reads go on without them.
//
// It does not agree with other Ringsides about what is missing: each repairs what
// it knows of.
package copies
