// Package routing ties a table to servers: which route a key takes, who holds it, and who serves it now.
//
// A table names pools and addresses; an engine has connections. When an engine
// takes up a table it binds each pool to its servers (BoundPool) and each
// listener to its routes (Listener.Bind). What is bound belongs to that engine,
// so a lookup takes no lock.
//
//	Listener.Route(key) ► Route, by the longest prefix or pattern; nil: no route wants the key
//	  BoundPool.Owners  ► the index of the server that the pool's rule gives the key to
//	  Route.Holders     ► the servers that keep a copy of the key, the one that decides first
//	  BoundPool.Find    ► who serves the key now, by the phases of its servers (health.View)
//
// # Where a key goes
//
//	the route                                  a key goes
//	keeps one copy, its owner is IN            to its owner: no task is needed
//	keeps one copy, its owner is not IN, is    where Find says; package failover leads the command
//	suspect, or has its keys under new names
//	lets increments wait                       as above, and every command is a task: packages counters and failover
//	keeps several copies                       to its holders; package copies leads the command, or copies/direct
//	                                           asks one of them for a value
//	in consistency strict                      as above, and every command is a task
//	its server is ordered away by a person     nowhere: Refusal says why
//
// NeedsTask decides between the first line and the others. It costs three
// comparisons where nothing is wrong.
//
// Find walks the key's order: the owner first, then the servers that the pool's
// failover mode names (the next on the ring, the ring rebuilt without those that
// are out, or the gutter's), until package health says that it knows enough.
//
// # What it does not do
//
// It decides no phase (health does) and asks no server. A Listener outlives a
// reload and keeps its name; its routes and pools don't.
package routing
