// Package discover asks sources for the servers of pools: DNS, a file, an ElastiCache endpoint, the
// Kubernetes API. Package serverlist decides what an answer changes, and package config puts the servers
// into a configuration.
//
//	Asker   asks one source once
//	Watch   asks the sources of a running instance again and again, and keeps the lists in force
//
// # Choices
//
//   - Every lookup runs in a goroutine of its own with a time limit. If it hangs beyond that limit,
//     the source counts as failing, and no second lookup is started until it ends. So a hanging
//     resolver blocks nothing, and its lookups do not pile up.
//   - A server that refuses a connection causes a lookup at once. While such lookups change nothing,
//     the pause between them doubles, up to the interval of the source.
//   - DNS is asked by net.Resolver, which reads /etc/resolv.conf, asks again over TCP after a truncated
//     reply, and returns no TTLs. So only the interval counts.
//   - The forms of DNS sources are those of Grafana's dskit, and yield the same texts: dns+ and dnssrv+
//     yield ip:port, dnssrvnoa+ the target of the record, with its trailing dot, and the port.
//   - Kubernetes is asked over net/http with the token of the pod. A watch of the API only tells when
//     to ask again: each answer is a complete list, so nothing can be missed.
package discover
