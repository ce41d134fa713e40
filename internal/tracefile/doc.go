// Package tracefile writes what happens to keys into files, as configured by the
// traces of the configuration.
//
//	2026-11-23T06:43:37.812Z home:top M L W U H87
//
// Each line is a key and what has happened to it since the last line, in the
// letters of package watch. An event is written after at most a quarter of a
// second. If events were dropped, a line says how many.
//
// # Limits
//
// Before a file would exceed max, it is renamed to its name plus .1, the old .1 to
// .2, and so on. At most keep renamed files remain, so a trace uses at most keep +
// 1 times max. If another program has moved or removed the file, the next write
// creates a new one. So logrotate can be used too.
//
// A new file has mode 0600, because keys may be secret. An existing file keeps its
// mode. Only a regular file is written, and symbolic links are not followed.
//
// # Errors
//
// If a file cannot be opened, the configuration is rejected with an error. If a
// later write fails (the disk is full), that trace ends with one line in the log.
// Nothing else is affected, and the next reload starts the trace again.
package tracefile

// This file contains only the documentation of the package.
