// Package fleet plays whole Ringsides against model servers in one process, on
// one clock, and judges every answer.
//
// It holds only tests. A seed decides what clients ask, how long packets take and
// what breaks, so a run that fails is the same when it is played again, with a
// trace. The proxies are real engines under a driver of its own; what a client of
// the engine can't see, the fleet doesn't see either: of a proxy it knows its
// answers, its Snapshot, Decided and whether its guards hold gets.
//
//	app ──► sidecar: Proxy, engines, clock, drivers ──► path: packets, cuts, delays ──► node: memnode, hangs, ends
//	 │                                                                                   ▲
//	 └──► judge: what may be answered, given all answers before         faults, plots, reloads by seed
//
// Promises (cases_test.go) are the cases that must hold. Herds (herds_test.go) are
// guarded routes: apps rebuild what they miss. Ablations leave one
// part of the protocol out and must be found, too: so what holds, holds because
// the simulation would see it broken.
//
//	go test ./internal/fleet -run 'Test(Failover|Guard)$'                               3 seeds of most promises, 1 of others
//	RINGSIDE_FULL=1 go test ./internal/fleet -run 'Test(Failover|Guard)$'               20 seeds, 5 or 3 of others
//	RINGSIDE_SEEDS=1000 go test ./internal/fleet -run 'Test(Failover|Guard)$' -timeout 0    make soak
//	RINGSIDE_SEED=17 go test ./internal/fleet -run 'TestFailover/strict,_warm$'         one seed, with its trace if it fails
//
// What it does not do: no sockets and no memcached (internal/e2e has those), one
// pool, one value in flight for each client; values expire on guarded routes only.
package fleet
