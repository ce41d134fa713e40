// Package trace hands what happens to keys to those who follow them, as it happens: people at
// the page and at terminals, and files.
//
//	Traces of the loops ► Tracer, four times a second ► Follower: what fits its patterns
//	rows of a Follower  ► Stories: a line for each key, a letter for each event
//
// # What it costs
//
// Nobody follows: nothing. Somebody does: every request is looked at, and its key compared
// with the patterns of all; and where it fits, its event is kept until it is taken. The
// bounds:
//
//	people at once              4, MostFollowers; files are not counted, of which there are as many at most
//	events kept                 4,096 in each loop
//	told to one follower        500 rows in a quarter of a second, of which each may be several hits in a row
//	waiting for a slow follower 2,000 rows
//
// What is beyond is dropped, and how many these are is told. So whoever follows too much
// misses events, and never makes anybody wait.
package trace

// The package's manual.
