// Package item knows what an item of a guarded route is on its server.
//
// It reads what a server says of it (Seen), and spells what is asked: for how long,
// with which flags. It remembers nothing.
package item

// The package's manual.
