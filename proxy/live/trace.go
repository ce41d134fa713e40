package live

// This part of the package passes events of traced keys to followers, as they happen: the
// dashboard, terminals and files.
//
//	Traces of the loops ► Tracer, four times a second ► Follower: events that match its patterns
//	rows of a Follower  ► Stories: a line for each key, a letter for each event
//
// # Cost
//
// Without a follower there is no cost. With one, every request is sampled and its key
// is compared with the patterns of all followers. If a pattern matches, the event is
// kept until it is read. The limits are:
//
//	interactive followers       4 (mostFollowers), in addition to at most 4 followers that write files
//	kept events                 4,096 in each loop
//	rows for one follower       500 in a quarter of a second; a row may stand for several consecutive hits
//	rows for a slow follower    2,000 unread
//
// Events beyond the limits are dropped and counted. So a follower with too many keys
// misses events, but never delays anything.

// This file is the documentation of the package.
