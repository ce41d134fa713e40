// Package client gives each client its replies, in its order and dialect.
package client
