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
//	POST   /control/servers/NAME/drain|down|restore[?pool=POOL]
//	POST   /control/tags/invalidate               invalidates tags: {"names": [NAME], "pool": POOL}
//	POST   /control/reload                        reads the configuration again, and says what it has changed
//	POST   /control/hand-over                     where the next process gets the listening sockets
//	GET    /control/faults                        what is wrong on purpose, and whether that is allowed
//	POST   /control/faults                        sets one: {"server": NAME, "pool": POOL, "kind": KIND,
//	                                              "delay": "100ms", "percent": 30, "for": "5s"}
//	DELETE /control/faults                        lifts all
//	DELETE /control/faults/ID                     lifts one
//
// Client speaks it. NAME is the name of a server or its address (a slash in it
// is written %2F); one that several pools have needs a pool, or is refused. An
// order is in force when it is answered, and so is a fault. Faults and
// their kinds are explained in package fault; a fault is one of an address,
// whatever pools name it.
//
// Answers are JSON. A request that is refused gets 4xx and {"error": …} with a
// sentence, and changes nothing.
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
// # Metrics
//
// A command's series are there with its first request, with zeros for the
// outcomes that it has not had; those of get, set and delete are there from
// the start. Outcomes are ok, hit, miss, stored, not_stored, exists, not_found,
// client_error, and the failures: server_error, timeout, lost (the connection
// broke), unavailable (no server to ask), crowded (its queue is full). Meta
// commands are counted as the text command that does the same.
//
// A server is known by its address; address is as in the configuration,
// unix:/path for a socket. Pools that list the same address share its
// connections and series. If they give it different names, server is the name
// in the last of them, so join with pool_server on address. A server that the
// table no longer names loses its series.
//
//	sum by (pool) (rate(ringside_server_requests_total[5m]) * on (instance, address) group_right ringside_pool_server)
//
// The share of hits of each route, which is the first question when something is slow;
// failed keys count as if they were not there:
//
//	sum by (route, pool) (rate(ringside_route_keys_total{result="hit"}[5m]))
//	  / sum by (route, pool) (rate(ringside_route_keys_total[5m]))
//
// Histograms have a bucket for each doubling from 16 µs to 8.6 s, those of servers from
// 33 µs to 4.3 s, and one at 403 ms. Besides these there are the go_ and process_ metrics of client_golang.
//
//	ringside_requests_total{command,outcome} counter
//	    Commands answered, by how they ended; a read that get_errors shows as a miss is counted as the failure
//	    that it was.
//	ringside_request_duration_seconds{command} histogram
//	    Time from reading a command to having its whole answer, of commands that had to wait for one.
//	ringside_requests_in_flight gauge
//	    Commands read and not answered yet.
//	ringside_keys_total{result} counter
//	    Keys that clients asked for, by result: hit, miss, or failed when no server could say.
//	ringside_route_requests_total{listener,route,pool,command,outcome} counter
//	    The part of the commands answered that was on keys of the route; one on keys of several is of the first's.
//	    The route is its prefix, or the word match and its pattern; empty for all other keys.
//	ringside_route_keys_total{listener,route,pool,result} counter
//	    The part of the keys asked for that the route took, by result.
//	ringside_loop_wakeups_total counter
//	    Times that a loop woke up for events.
//	ringside_loop_reads_total counter
//	    Reads from sockets that brought bytes.
//	ringside_loop_writes_total counter
//	    Writes to sockets that took bytes.
//
//	ringside_client_connections gauge
//	    Client connections open now.
//	ringside_client_connections_limit gauge
//	    Client connections that may be open at once: limits.clients.
//	ringside_client_connections_accepted_total counter
//	    Client connections accepted, those refused at once included.
//	ringside_client_connections_refused_total{reason} counter
//	    Client connections refused, by reason: limit (limits.clients is reached; with an error), descriptors (the process
//	    may open no more files), stopping (Ringside or the listener; by a reset).
//	ringside_client_connections_closed_total{reason} counter
//	    Client connections that Ringside closed, by reason: idle (limits.idle), unfinished (limits.unfinished: in the middle of a command),
//	    login (it did not say in time who it is), output (limits.output_hard), memory (limits.memory), cut_off (a server went away in
//	    the middle of a value).
//	ringside_client_logins_failed_total counter
//	    Wrong users or passwords that clients gave: auth_file.
//	ringside_client_received_bytes_total counter
//	    Bytes read from clients.
//	ringside_client_sent_bytes_total counter
//	    Bytes written to clients.
//	ringside_buffer_bytes gauge
//	    Memory held for clients and servers now: buffers, those kept for reuse included, requests, answers that wait.
//	ringside_buffer_limit_bytes gauge
//	    Memory that may be held for them: limits.memory.
//	ringside_values_refused_total counter
//	    Values refused because limits.memory was reached.
//	ringside_counters_created_total counter
//	    Counters that were missing and that an incr or decr has made, by autocreate.
//	ringside_buffer_increments_total counter
//	    Increments that waited here, so that one request carried many.
//	ringside_buffer_flushes_total counter
//	    Requests that carried increments which had waited.
//	ringside_buffer_flushed_total counter
//	    Increments that these requests have carried.
//	ringside_buffer_lost_total{reason} counter
//	    Sum of increments that had waited and that no server was told of: the counter is gone or no number (missing), or could not be reached for buffer.keep (unreachable); or may not have been: it did not answer (unsure). overwritten: a set or delete came first, nothing is missing.
//	ringside_buffer_keys gauge
//	    Counters of which increments wait, or may.
//	ringside_buffer_pending gauge
//	    Sum of the increments that wait now.
//
//	ringside_server_up{server,address} gauge
//	    1 while no loop holds the server for down, else 0; absent until it has answered or failed to.
//	ringside_server_connections{server,address} gauge
//	    Connections to the server open now.
//	ringside_server_zombie_connections{server,address} gauge
//	    Further connections to the server that get no requests and stay open for late answers.
//	ringside_server_queue_depth{server,address} gauge
//	    Requests to the server without an answer, those not sent yet included.
//	ringside_server_requests_total{server,address} counter
//	    Requests handed to a connection of the server.
//	ringside_server_requests_failed_total{server,address} counter
//	    Requests handed to a connection of the server that got no answer.
//	ringside_server_requests_timed_out_total{server,address} counter
//	    The part of the failed requests that was not answered in time.
//	ringside_server_mutations_undone_total{server,address} counter
//	    The part of the failed requests that the server may still do, and behind which their keys are deleted.
//	ringside_server_mutations_undo_lost_total{server,address} counter
//	    The part of those whose delete was not answered: an old value may be left.
//	ringside_server_requests_refused_total{server,address,reason} counter
//	    Requests not handed to a connection of the server, by reason: down, queue_full, memory (limits.memory; also
//	    those that it was not sent in time), ordered (a person has drained it or taken it down).
//	ringside_server_request_duration_seconds{server,address} histogram
//	    Time from handing a request to a connection of the server to its whole answer.
//	ringside_server_dials_total{server,address} counter
//	    Attempts to connect to the server.
//	ringside_server_connections_closed_total{server,address,reason} counter
//	    Connections that the server ended, by reason: lost (with requests in flight), idle (without).
//	ringside_server_outages_total{server,address} counter
//	    Times that a loop began to hold the server for down.
//	ringside_server_received_bytes_total{server,address} counter
//	    Bytes read from the server.
//	ringside_server_sent_bytes_total{server,address} counter
//	    Bytes written to the server.
//	ringside_server_version_info{server,address,version} gauge
//	    1, with the version that the server told last; absent until it has told one.
//	ringside_server_ordered_away{pool,server,address,order} gauge
//	    1 while a person keeps the server of this pool from getting requests, by order (drain, down), else absent.
//	ringside_failover_phase{pool,server} gauge
//	    What the pool does with the server's keys: 0 IN, 1 LEAVING, 2 OUT, 3 RETURN, 4 WARM, 5 SETTLE; of pools whose
//	    keys move, or that keep copies.
//	ringside_failover_suspect{pool,server} gauge
//	    1 while this Ringside gets no answers from the server, so that its keys miss and their writes fail, else 0.
//	ringside_failover_outages_total{pool,server} counter
//	    Times that the server was taken out of the pool, by whatever Ringside, since the view record began.
//	ringside_failover_changes_total{pool,server,to} counter
//	    What this Ringside has seen become of the server, by what it became: up, suspect, a phase; with an empty
//	    server, of the pool.
//	ringside_failover_lease_seconds{pool,server} gauge
//	    How long the last good ping of the server still counts; negative: it has run out.
//	ringside_copies_repaired_total{result} counter
//	    Copies of single keys made again, by result: done (begun), dropped (over the route's repair rate, or the
//	    key was just deleted).
//	ringside_hot_key_ratio{rank} gauge
//	    Part of all requests that the key at this rank has lately, of those that are asked for most. Which keys
//	    they are is on the page and in ringside top; of the routes, which have all requests, see
//	    ringside_route_requests_total.
//	ringside_hot_key_ratio_error{rank} gauge
//	    By how much hot_key_ratio may be off.
//	ringside_hot_key_one_in gauge
//	    Of so many requests one is looked at to find the hot keys.
//	ringside_pairing_doubts_total counter
//	    Server connections aborted because a reply could not be paired with a request; anything but 0 is a bug,
//	    here or in a server.
//	ringside_pool_server{pool,server,address,weight} gauge
//	    1 for each server of each pool of the table in force, with the name and weight that it has there.
//
//	ringside_guard_wins_total{route} counter
//	    Gets that were told to rebuild: a miss, or a value that is due or deleted.
//	ringside_guard_fills_total{route} counter
//	    Sets of those that were stored.
//	ringside_guard_waits_total{route} counter
//	    Gets held while another client rebuilds.
//	ringside_guard_saved_total{route} counter
//	    Held gets that got a value: rebuilds saved.
//	ringside_guard_late_total{route} counter
//	    Held gets whose wait was over.
//	ringside_guard_stale_served_total{route} counter
//	    Old values served while another client rebuilds.
//	ringside_guard_early_total{route} counter
//	    The part of the wins that came before the value expired.
//	ringside_guard_given_back_total{route} counter
//	    Wins given back because their client went away.
//	ringside_guard_rearmed_total{route} counter
//	    Wins given to another client because theirs did not come back within a lease.
//	ringside_guard_polls_total{route} counter
//	    Requests to servers for those who wait.
//	ringside_guard_ambiguous_total{route} counter
//	    Sets of which it was not sure whose they are; many: set clients in the guard of the route.
//	ringside_guard_forgotten_total{route} counter
//	    Misses forgotten because of limits.tickets; their sets are ordinary ones.
//	ringside_guard_barren_total{route} counter
//	    Gets not held because nobody fills their key.
//	ringside_guard_looks_total{route} counter
//	    Requests to servers that only the guard needs.
//	ringside_guard_writes_total{route} counter
//	    Commands that are no reads.
//	ringside_guard_off_total{route} counter
//	    Commands to servers without meta commands or cas, which have no guard.
//	ringside_guard_refused_total{route,reason} counter
//	    Sets not stored because they came too late, by reason: ex (another value is there), nf (the key was deleted,
//	    or its lease has ended), void (nothing is known of the key since the miss).
//	ringside_guard_waiting{route} gauge
//	    Gets held now.
//	ringside_guard_tickets{route} gauge
//	    Misses now whose sets are awaited.
//	ringside_guard_lease_seconds{route} gauge
//	    What the lease has grown to by rebuilds that took longer; 0: it has not.
//	ringside_guard_wait_seconds{route} histogram
//	    Time that gets were held.
//	ringside_guard_rebuild_seconds{route} histogram
//	    Time from a win to its set.
//
//	ringside_tags_hits_total{route} counter
//	    Values with tags that were found, and all their tags were the same still.
//	ringside_tags_invalid_total{route} counter
//	    Values that were found, and a tag had changed since, or one was missing that the key must have.
//	ringside_tags_broken_total{route} counter
//	    Values whose head could not be read; anything but 0: somebody else writes them, or reads the wrong ones.
//	ringside_tags_unordered_total{route} counter
//	    Sets not stored because a tag that they name may have changed since their miss.
//	ringside_tags_second_round_total{route} counter
//	    Values with tags that were not asked for with them.
//	ringside_tags_too_many_total{route} counter
//	    Sets refused because they name more tags than limits.tags_per_value.
//	ringside_tags_remembered{route} gauge
//	    Keys of which the tags are remembered that clients have named.
//	ringside_tags_invalidation_seconds histogram
//	    Time from an invalidation to the last server's answer.
//	ringside_tags_invalidation_errors_total counter
//	    Invalidations that not all servers have answered.
//
//	ringside_config_reload_success gauge
//	    1 if the configuration that was read last is in force, 0 if it was refused and an older one is.
//	ringside_config_last_reload_timestamp_seconds gauge
//	    When a configuration was read last, whether it was taken or refused, in Unix time.
//	ringside_config_reloads_total{result} counter
//	    Reloads since the start, by result: success, failure.
//	ringside_config_generation gauge
//	    Number of the table in force; 1 is that of the start.
//	ringside_build_info{version,goversion} gauge
//	    1, with the version of Ringside and of the Go that built it.
package admin

// The package's manual.
