// Package routing maps a key to its route and to the servers that hold or serve it.
//
// A table names pools and addresses; an engine has connections. When an engine adopts a
// table, it binds each pool to its servers (BoundPool) and each listener to its routes
// (Listener.Bind). Bound objects belong to that engine, so a lookup needs no lock.
//
//	Listener.Route(key) ► Route, by the longest prefix or pattern; nil: no route matches the key
//	  BoundPool.Owners  ► the index of the server that owns the key by the pool's rule
//	  Route.Holders     ► the servers that hold replicas of the key, the primary first
//	  BoundPool.Find    ► the server that serves the key now, by the phases of the servers (health.View)
//
// # Where a command is sent
//
//	the route                                  a command on a key
//	has one copy, the owner is IN              is sent to the owner, without a task
//	has one copy, the owner is not IN, is      is sent where Find says, by package failover
//	suspect, or stores keys under new names
//	buffers increments                         as above, but always as a task: packages counters and failover
//	has several replicas                       is sent to the replicas by package replication, or
//	                                           a read to one of them without a task
//	has strict consistency                     as above, but always as a task
//	an operator drained the server             is rejected: Refusal returns the reason
//	or took it down
//
// NeedsTask selects between the first case and the others. It costs three comparisons
// while all servers are IN.
//
// Find walks the servers in the order of the key: first the owner, then the servers
// chosen by the pool's failover mode. These are the next servers on the ring, the ring
// rebuilt without ejected servers, or the gutter's servers. It stops as soon as package
// health reports that the route is known.
//
// # Limits
//
// It does not decide phases (package health does) and sends no requests. A Listener
// survives a reload and keeps its name; its routes and pools are replaced.
package routing
