// Package guard lets one client at a time rebuild a value that is missing.
//
// Clients that know only get, set and delete need to know nothing of it. A guarded
// get is one mg with N and, where old values are of use, R: memcached itself says
// which client rebuilds, and leaves a stub for the others. Every miss that a client is
// told of is recorded (package misses), with the cas of the item that it has left or
// seen. The set that answers it is stored only if nothing has touched the key since, so
// it can't bring back what was deleted meanwhile. The others get the old value, where
// there is one that may be served, or are held.
//
// What must hold for all Ringsides is on the servers: stubs, the marks W, Z and X, and
// cas. A Ringside that dies loses its misses and the gets that it holds, and nothing else.
// In doubt a set is answered NOT_STORED, and what is stored stays.
//
// # What is on a server
//
//	stub            empty, client flags 0, and one of W, Z, X is shown: made by mg N, nothing to clients
//	empty value     of a client, with flags 0: kept with the flags 0x52530000, shown with 0
//	Z, TTL < R      somebody rebuilds it before it expires; the others get it
//	X               deleted, kept to be served while it is rebuilt (stale); nothing to all other commands
//
// # Commands
//
//	            sent                                             W                Z on a stub
//	get         mg k f v c t N R k                               miss             held, then a value or a miss
//	gets        mg k f v c t N k                                 miss             held; an old value is never given
//	set         after a miss: ms k C<cas>; HD: stored; NF, EX: NOT_STORED; without: ms k
//	delete      mg k s f c t R0, md k; with stale: md k I C<cas> T<stale>
//	add         after a miss of a stub or X: as set; of a value: NOT_STORED; without: ms k ME; NS: look; stub, X: ms k C<cas>
//	replace     after a miss: as set, with MR; of a stub: NOT_STORED
//	replace, append, prepend: look; ms k MR C<cas>, MA, MP; a stub, X: NOT_STORED
//	incr, decr  as they are; no number: look; with stale: look, ma k C<cas>
//	touch, gat  look, then as they are, with the longer time
//	cas, mg with N or R, ms with C or I, md with I or C, me: as they are
//
// # A key
//
//	none ► mg N: W ► stub(Z) ► ms C ► value ► TTL < R: W ► due(Z) ► ms C ► value
//	stub ► its lease ends, it is given back, md ► none
//	value ► delete, stale: md I ► X ► mg: W ► X(Z) ► ms C ► value
//	Z for a lease with one cas ► given back by whoever sees it
//
// # Several copies
//
// What is asked of a key of several copies is a step of its command, which package
// copies leads: see package copied.
//
// All asks of one key are led by one loop of the process, which has its misses
// and those who wait for it; hits alone don't go there.
//
// # What it does not do
//
//   - It does not see that a key is rebuilt once only: a lease that ends, a stub that its
//     server has lost, and a wait that is over let one more client rebuild each.
//   - It does not bind a set without a miss: that stores as on any route, unless the route
//     has sets: after_miss.
//   - It keeps no values. Package near does, and memcached keeps the old ones.
package guard

// The package's manual.
