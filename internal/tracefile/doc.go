// Package tracefile writes what happens to keys into files: what the configuration's traces
// ask for.
//
//	2026-11-23T06:43:37.812Z home:top M L W U H87
//
// Each line is a key and what has happened to it since the last line, by letters of package
// watch; at most a quarter of a second goes by until it is there. Where events were dropped
// a line says how many.
//
// # Bounds
//
// A file that would get larger than max is moved aside, to the name with .1 behind it, the
// one that had that name to .2, and so on; keep of these are left. So a trace takes keep + 1
// times max at most. A file that somebody else has moved or removed is made anew at the next
// line, so logrotate may do the same.
//
// A file is made for its owner alone (0600), for keys may be secrets; one that is there keeps
// the permissions that it has. Only a regular file is written,
// and a symbolic link is not followed.
//
// # Trouble
//
// What can't be opened is told to who reads the configuration, which is refused. What can't
// be written later, on a full disk for one, ends that trace with one line in the log, and
// nothing else; the next reload begins it again.
package tracefile

// The package's manual.
