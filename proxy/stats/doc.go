// Package stats counts what one loop does, adds up what all have counted, and prints it.
package stats
