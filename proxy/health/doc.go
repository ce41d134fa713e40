// Package health decides from outcomes and time whether a server takes traffic.
package health
