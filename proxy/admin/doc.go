// Package admin shows and steers a running proxy over HTTP.
//
//	/              the page: the pool, its ring, its servers, their memory, live
//	/api/          what the page shows, for clients on this machine unless Options.Page says otherwise
//	/metrics       for Prometheus
//	/healthz       200 while every loop answers within a second, else 503
//	/readyz        200 while clients should come here, else 503 and why not
//	/debug/pprof/  Go profiles, for clients on this machine unless Options.Pprof says otherwise
//	/control/      servers and faults, for clients on this machine unless Options.Control says otherwise
//
// Everything is read from copies of the loops' counters, which the loops make
// between two wakeups when they are asked. Nothing here is on the way of a
// request, and what nobody looks at costs nothing.
//
// # Choices
//
//   - Ready means: the listeners are open, nothing is being stopped, the loops
//     answer. It does not ask whether servers are up. A proxy without servers
//     still answers at once, and when a server goes all proxies see it: taking
//     all of them out would make an outage of one cache an outage of the site.
//   - A scrape is whole and of now, or it fails: when a loop does not report
//     within a second the answer is 500 and says so, and Prometheus sets up to
//     0. Old or partial numbers would hide that the clients of that loop wait.
//   - Who may not see the page gets a list of links instead.
//   - Outside /control/ only GET and HEAD are answered. Nothing that a client
//     sends is shown to anybody, no header is believed, and connections,
//     scrapes, headers and times have bounds.
//   - Profiles for loopback also need a Host that is a loopback address or
//     localhost, so that no web page can make a browser here fetch them. A
//     reverse proxy on the same machine is on loopback: it must not pass
//     /debug/pprof/ on.
//
// # The page
//
//	GET /api/stream[?pool=POOL]          server-sent events: hello, topo, history, then tick (1 s), mem and slabs (5 s),
//	                                     event (as it happens), late (a loop does not report)
//	GET /api/now[?pool=POOL][&for=2s]    one object: what was counted over that time
//	GET /api/trace?pattern=P[&for=10m]   server-sent events: what happens to keys that fit one of the patterns, until that time is over
//	GET /api/route?key=KEY[&pool=POOL]   what ringside route --json says, and where that is on the ring; key64= in base64
//	GET /api/ring[?pool=POOL]            the ring's points, in binary: live.RingBytes
//
// What the events hold is written at the types of package live. The page is made
// of three files that are part of the program, and asks nobody but its Ringside; a
// content security policy holds it to that. Every key is put in as text, with
// what is no printable character as \xNN.
//
//   - It shows keys, so who may see it is a setting of its own: clients on this
//     machine unless Options.Page says otherwise.
//   - A web page must not read it through the browser of somebody who may. So
//     Host must be an address, localhost or one of Options.Names (else it could be a
//     name that another page has made point here), and Sec-Fetch-Site, where the
//     browser sends it, that of the page itself.
//   - 16 may watch at a time. One that takes nothing for 15 seconds is let go;
//     one that is slow is sent less. The server's time for an answer is renewed
//     with each event, and Shutdown ends the streams.
//
// # Control
//
//	GET    /control/servers                       every server of every pool, and how it is
//	GET    /control/clients[?sort=held&limit=50]  the clients that come first, and what each waits for
//	POST   /control/servers/NAME/drain|down|restore[?pool=POOL][&force=true]
//	POST   /control/reload                        reads the configuration again, and says what it has changed
//	POST   /control/tags/invalidate               invalidates tags: {"names": [NAME], "pool": POOL}
//	POST   /control/hand-over                     where the next process gets the listening sockets
//	GET    /control/faults                        what is wrong on purpose, and whether that is allowed
//	POST   /control/faults                        sets one: {"server": NAME, "pool": POOL, "kind": KIND,
//	                                              "delay": "100ms", "percent": 30, "for": "5s"}
//	DELETE /control/faults                        lifts all
//	DELETE /control/faults/ID                     lifts one
//
// Client speaks it. NAME is the name of a server or its address (a slash in it
// is written %2F); one that several pools have needs a pool, or is refused. An
// order is in force when it is answered, and so is a fault. One that may take the last copy of
// keys that is in use is refused with 409, unless force says otherwise; nobody else's order
// is given between that look and the order. Faults and their kinds are explained in package
// fault; a fault is one of an address, whatever pools name it.
//
// Answers are JSON. A request that is refused gets 4xx and {"error": …} with a
// sentence, and changes nothing. 504 says that nobody knows whether something was
// changed, by SayUnsure, or how the server is behind an order that was given.
//
//   - Who may steer is who may take profiles, by a setting of its own: clients
//     on this machine unless Options.Control says otherwise. That includes
//     reading: why a server is down is nobody else's business.
//   - A web page must not steer through the browser of somebody who may. A
//     request that changes something needs the header Ringside-Control, which
//     a page of another origin cannot set without asking first, and is never
//     allowed to. One with an Origin (browsers send it with every POST and DELETE,
//     tools do not) is refused, unless it is Ringside's own page: Origin and Host
//     are the same, Host is known as above, and the header holds the token that
//     this process has given to its page, which no other origin can read.
//   - There is no password: who needs one puts a reverse proxy in front.
//   - Faults need admin.allow_faults. A reload that takes it back lifts all faults.
//   - A reload is answered when all loops go by the new configuration, or with
//     422 and what is wrong with it; then the old one stays in force as a whole.
//
// # What it does not do
//
//   - It decides nothing about servers: an order is the keepers' to carry out (package
//     failover), a fault the drivers' (package loop).
//   - It reads no configuration and opens no listener: the command does both, and hands
//     it what they came to (Options.Reload, Options.ReadAgain, Allow).
//   - It remembers nothing of its own. What the page draws of the last minutes package
//     live keeps.
//   - It speaks no TLS.
//
// # Metrics
//
// docs/metrics.md lists them, with the queries that are asked most.
package admin

// The package's manual.
