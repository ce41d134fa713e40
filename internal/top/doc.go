// Package top shows on a terminal, every second, what a running Ringside instance
// does.
//
// It reads the same stream as the dashboard and uses the same sentences. A View is
// the state received so far. Draw renders it as the lines of a screen of any size.
// Run displays them until the user quits. Run sends only lines that have changed,
// and each screen in one write, because the terminal may be far away.
//
//	from 112 columns    all columns of servers, and a longer line of recent rates
//	from 80 columns     without SHARE, FOR, p50, CONN and ITEMS
//	below 80 columns    columns are dropped from the right
//	from 34 lines       memory by item size
//	from 20 lines       hot keys; below 34 lines, traced keys replace them
//	below 60x10         only the sentence about the state of the pool
//
// One section of the screen, or one server, can fill the whole screen: see parts.go. The screen
// changes every second, or every 2, 5 or 10 s. The stream has at most one state per second.
//
// On a terminal that only has ASCII, each other character is replaced by an ASCII
// one. The Linux console is treated as such a terminal.
//
// A state is a sign, a word and a color. NO_COLOR disables the colors.
package top

// This file is the manual of the package.
