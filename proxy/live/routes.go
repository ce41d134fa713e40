package live

// This part of the package reports the work of routes that have a guard, tags, replicas or a near cache.
// This includes saved rebuilds, invalidated tags, repaired replicas, reads served
// without a server, and what servers with replicas still lack.
//
//	takeCounts: the counters of the routes at one moment ► routesBetween: the work between two such moments
//
// Guards and tags count by route over all loops, with atomics that are not on the path
// of a hit. What servers lack is in the ledgers of the loops, each for the keys that it
// runs, and is part of the snapshot that is taken anyway. So the report costs nothing
// while there is no watcher.
//
// Routes with the same label count together, whatever their listener and pool. For
// routes with a near cache, hits are also counted by pool, but the stored values are not.
// Invalidations and repairs are counted for the whole process. Missed writes that only
// other instances know of are not included.
