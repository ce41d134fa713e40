// Package admin serves the dashboard, metrics, health checks and control of a running proxy
// over HTTP.
//
//	/              the dashboard: the pool, its ring, its servers, their memory, live
//	/api/          the data of the dashboard, for clients on this machine unless Options.Page says otherwise
//	/metrics       for Prometheus
//	/healthz       200 while every loop answers within a second, else 503
//	/readyz        200 while clients should use this instance, else 503 and the reason
//	/debug/pprof/  Go profiles, for clients on this machine unless Options.Pprof says otherwise
//	/control/      servers and faults, for clients on this machine unless Options.Control says otherwise
//
// Everything is read from copies of the loops' counters. The loops make these on request,
// between two wakeups. No request of a client passes through this package, and without admin
// requests it costs nothing.
//
// # Choices
//
//   - Ready means: the listeners are open, nothing is being stopped, the loops answer. It does
//     not depend on servers. A proxy without servers still answers at once, and when a server
//     fails, all proxies see it. If all of them became unready, the outage of one cache would
//     be an outage of the site.
//   - A scrape is complete and current, or it fails: if a loop does not report within a
//     second, the reply is 500 with the reason, and Prometheus sets up to 0. Old or partial
//     numbers would hide that the clients of that loop wait.
//   - A client that may not see the dashboard gets a list of links instead.
//   - Outside /control/ only GET and HEAD are answered. The input of an HTTP client is never shown
//     to others, no header is trusted, and connections, scrapes, headers and times are limited.
//   - Profiles for loopback also need a Host that is a loopback address or localhost, so that
//     no web page can make a browser on this machine fetch them. A reverse proxy on the same
//     machine connects over loopback, so it must not pass on /debug/pprof/.
//
// # The dashboard
//
//	GET /api/stream[?pool=POOL]          server-sent events: hello, topo, history, then tick (1 s), mem and slabs (5 s),
//	                                     event (at once), late (a loop does not report)
//	GET /api/now[?pool=POOL][&for=2s]    one object: the counts during that time
//	GET /api/trace?pattern=P[&for=10m]   server-sent events: the requests on keys that match one of the patterns, for that time
//	GET /api/route?key=KEY[&pool=POOL]   the output of ringside route --json, and the key's position on the ring; key64= in base64
//	GET /api/ring[?pool=POOL]            the ring's points, in binary: live.RingBytes
//
// The content of the events is documented at the types of package live. The dashboard consists
// of three files that are embedded in the program, and connects only to its own instance; a
// content security policy enforces this. Every key is inserted as text, with unprintable
// characters as \xNN.
//
//   - The dashboard shows keys, so access to it is a separate setting: clients on this machine unless
//     Options.Page says otherwise.
//   - A web page of another site must not read the dashboard through the browser of a user with
//     access. So Host must be an address, localhost or one of Options.Names: the owner of a web
//     page can make any other name resolve to this instance. Sec-Fetch-Site, if the browser
//     sends it, must be that of the dashboard itself.
//   - At most 16 clients may watch at a time. One that reads nothing for 15 seconds is
//     disconnected; a slow one is sent less. The write deadline is renewed with each event,
//     and Shutdown ends the streams.
//
// # Control
//
//	GET    /control/servers                       every server of every pool, with its state
//	GET    /control/clients[?sort=held&limit=50]  the first clients in the order sort, and what each waits for
//	POST   /control/servers/NAME/drain|down|restore[?pool=POOL][&force=true]
//	POST   /control/reload[?accept=true&dead=true] reloads the configuration, and returns the changes
//	GET    /control/config                        the configuration file that is in use, as it was read
//	POST   /control/tags/invalidate               invalidates tags: {"names": [NAME], "pool": POOL}
//	POST   /control/hand-over                     where the next process gets the listening sockets
//	GET    /control/faults                        the injected faults, and whether they are allowed
//	POST   /control/faults                        sets a fault: {"server": NAME, "pool": POOL, "kind": KIND,
//	                                              "delay": "100ms", "percent": 30, "for": "5s"}
//	DELETE /control/faults                        lifts all faults
//	DELETE /control/faults/ID                     lifts the fault with this ID
//
// Client implements the client side. NAME is the name of a server or its address (with a slash
// written as %2F). If several pools have it, the request needs a pool. An order or a fault is
// in effect when the request is answered. An order that may remove the last replica of keys in
// use is rejected with 409, unless force is set. No other order is executed between that check
// and the order. Faults and their kinds are documented in package fault. A fault applies to an
// address, in all pools that name it.
//
// Replies are JSON. A rejected request gets 4xx and {"error": …} with a sentence, and changes
// nothing. 504 means that it is unknown whether something was changed (sayUnsure), or what
// state the server is in after an order.
//
//   - Access is a separate setting, as for profiles: clients on this machine unless
//     Options.Control says otherwise. This includes reading, because the reason why a server
//     is down is not public.
//   - A web page must not control Ringside through the browser of a user with access. A
//     request that changes something needs the header Ringside-Control. A page of another
//     origin can't set it without a preflight request, which is never allowed. A request with
//     an Origin (browsers send it with every POST and DELETE, tools do not) is rejected,
//     unless it comes from Ringside's own dashboard. In that case Origin and Host are the same,
//     Host is an address, localhost or one of Options.Names, and the header has the token that
//     this process has given to its dashboard. No other origin can read that token.
//   - With Security.Users or Security.Certificate, every request except /healthz and /readyz also needs
//     a login or a certificate. A request must pass all checks.
//   - Faults need admin.allow_faults. A reload that disables it lifts all faults.
//   - A reload is answered when all loops use the new configuration, or with 422 and the
//     error. In that case the old one stays in effect completely.
//
// # Limits
//
//   - The package does not decide about servers: the keepers execute orders (package failover),
//     and the drivers execute faults (package loop).
//   - It does not read the configuration or open listeners: the command does both, and passes
//     in the results (Options.Reload, Options.ReadAgain, Allow).
//   - It stores no history. Package live keeps what the dashboard shows of the last 15 minutes.
//
// # Metrics
//
// docs/metrics.md lists them, with the most common queries.
package admin

// The package documentation.
