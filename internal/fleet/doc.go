// Package fleet simulates complete Ringside instances with model servers, in one process on one
// clock, and checks every reply.
//
// The package contains only tests. A seed decides the requests of clients, the delays of packets
// and the faults. A failed run can therefore be repeated, with a trace. The proxies are real
// engines with a simulated driver. The simulation does not look inside an engine: it uses only
// the replies, the methods Snapshot, Phases and Decided, and whether gets wait for a rebuild. Only
// TestPipelines also checks the structures and the memory of each engine.
//
//	app ──► sidecar: Proxy, engines, clock, drivers ──► path: packets, cuts, delays ──► node: memnode, which may hang or exit
//	 │                                                                                   ▲
//	 └──► judge: allowed replies, given all earlier ones                faults, sequences of faults, and reloads, by seed
//
// At every step it also checks the rules of package health (rules_test.go): phases follow each other
// in the allowed order, a strict proxy uses a server only with the leases that this requires, and no
// proxy reads from a server that is being flushed.
//
// Clients that have several commands in flight count and check every reply: TestReplies (replies_test.go) on routes with
// all features, and TestPipelines (pipelines_test.go) on plain routes, with sockets that transfer parts of the bytes.
//
// The list promises (cases_test.go) contains the cases that must hold. The list herds
// (herds_test.go) contains guarded routes, on which apps rebuild missing values. An ablation
// disables one part of the protocol, and the simulation must detect that. This proves that
// it would also detect a mistake in that part.
//
//	go test ./internal/fleet -run 'Test(Failover|Guard)$'                               2 seeds of most promises, 1 of others
//	RINGSIDE_FULL=1 go test ./internal/fleet -run 'Test(Failover|Guard)$'               20 seeds, 5 or 3 of others
//	RINGSIDE_SEEDS=1000 go test ./internal/fleet -run 'Test(Failover|Guard)$' -timeout 0    make soak
//	RINGSIDE_SEED=17 go test ./internal/fleet -run 'TestFailover/strict,_warm$'         one seed, with its trace if it fails
//	go test ./internal/fleet -run 'Test(Failover|Guard)$' -v                           prints a digest of each case; a change that must not
//	                                                                                change behaviour must not change the digests
//
// Limits: there are no sockets and no memcached (internal/e2e uses both), only one
// pool except in TestReplies, and one value in flight for each app. Values expire on guarded routes only.
package fleet
