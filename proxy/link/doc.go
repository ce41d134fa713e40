// Package link holds the bytes of one connection between an engine and its driver.
package link
