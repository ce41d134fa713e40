// Package routes says what routes do that have a guard, tags, copies or near: rebuilds saved,
// tags invalidated, copies mended, reads that no server was asked for; and what servers with
// copies still lack.
//
//	Take: what the routes have counted by now ► Of: what they did between two of these
//
// Guards and tags count for each route over all loops, with atomics that nothing on the
// way of a hit touches; what servers lack is in the ledgers of the loops, each of the keys
// that it leads, and comes with the snapshot that is made anyway. So nobody pays but who
// looks.
//
// Routes of one label count together, whatever listener and pool they belong to; of those
// with near, the hits count by pool too, what is kept does not.
// Invalidations and repairs are of the whole process. What other Ringsides have seen
// servers miss is not known here.
package routes
