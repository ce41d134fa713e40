// Package serverlist decides which servers a pool has if its configuration names a source of servers,
// such as a DNS name, instead of the servers. It looks nothing up, and has no clock: package discover
// (internal/discover) asks the sources, and reports each answer to a List with the time.
//
//	Source   what the configuration names: dns+HOST:PORT, dnssrv+NAME, file+PATH, …
//	Server   one server of an answer: a name, the address where it is now, a weight
//	List     the servers in force, and what has happened to the source's answers
//	Version  which of the numbered lists of an ElastiCache endpoint counts
//
// # Rules
//
//   - The name is the identity of a server, and decides the placement of keys. A known name with
//     another address is the same server elsewhere: it moves no key.
//   - A server that an answer leaves out stays in the list for the time Keep. It is removed by the
//     first answer without it after that time, and by nothing else. So a pod can restart, and a source
//     that fails removes no server.
//   - A failed lookup, an empty answer and an answer with more than MostServers servers change nothing.
//   - An answer that adds or leaves out more than MaxChange of the servers in force is held: it
//     changes only the addresses of known names. One server may always change. Servers that earlier
//     answers have left out count until they are removed, so a source that loses one server after the
//     other is held, too. The operator can accept the answer.
//   - The first answer is taken as it is, whatever its size.
//   - The list is in natural order (digits compare as numbers), because placement can depend on the order.
package serverlist
