package live

// This part of the package reports the work of routes that have a guard, tags, replicas or a near cache.
// This includes saved rebuilds, invalidated tags, repaired replicas, reads served
// without a server, and what servers with replicas still lack.
//
//	takeCounts: the counters of the routes at one moment ► routesBetween: the work between two such moments
//
// Guards and tags count by route over all loops. Their counters are atomics, which a cache
// hit does not use. What servers lack is in the ledgers of the loops. A loop has a ledger for
// the keys whose commands it runs, and the ledgers are part of each snapshot. So the report
// costs nothing while there is no watcher.
//
// Routes with the same label count together, whatever their listener and pool are. Hits of
// the near cache are counted by route and pool, but the values in the near cache only by
// route. Invalidations and repairs are counted for the whole process. Missed writes that only
// other instances know of are not included.
