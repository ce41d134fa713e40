// Package copies keeps several copies of a key alike.
package copies
