// Package routing ties a table to servers: which route a key takes, who holds it, and who serves it now.
package routing
