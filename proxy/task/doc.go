// Package task runs commands that take several requests, in the order of their keys.
package task
