// Package top draws what a running Ringside does on a terminal, second by second.
//
// It reads the stream that the page reads, and says the same sentences. A View is
// what has come so far; Draw makes the lines of a screen of it, for any size; Run
// shows them until a person has seen enough. Lines that have not changed are not
// sent again, and each screen is one write, for people far away.
//
//	wide enough for    80 columns     all columns of servers but SHARE, FOR, CONN, ITEMS
//	                   112            those too, and a longer line of the past
//	                   less           columns go from the right
//	high enough for    34 lines       memory by size of item
//	                   20             what happens to keys that a person follows; below 34 lines instead of the hot keys
//	less than 60x10                   the sentence alone
//
// One part, or one server, may have all the room: see parts.go. A picture comes every second, or
// every 2, 5 or 10: the stream has no more than one a second.
//
// Where a terminal has nothing but ASCII, which the Linux console is taken for, each
// character that it lacks has one that stands for it.
//
// State is a letter-like sign, a word and a colour; NO_COLOR leaves the colours out.
package top

// The package's manual.
