// Package replicate decides which replicas of a key get a command, and which reply the
// client gets.
//
// A replica of a key is one server of the key's replica set. Begin makes the
// Rule of one command from a Policy and the states of the replicas. Next returns the
// requests (asks) to send. HandleOutcome records the outcome of one of them. Settled returns what
// the client gets and which replicas need a repair. The package is pure: it does no I/O,
// has no clock, and sees neither keys nor values. Its caller
//
//   - sends what Next returns until it returns nothing, after Begin and after each HandleOutcome;
//   - replies to the client as soon as Settled reports true, and continues until IsDone:
//     Dirty, Clean, Undo and Repair may grow until then;
//   - sets a deadline for each ask, and reports InDoubt or Unsent when it passes;
//   - recognizes a tombstone by its flags, and reports Marked for it to every ask that
//     shows flags;
//   - uses the cas that an ask returned only on the same connection, because a restarted
//     server assigns the same numbers again. If the connection of an ask's Guard is closed,
//     the caller does not send the ask and reports Exists;
//   - sends a Fetch only while no instance may have skipped the replica in a write: it is In,
//     Warming or Settling, and with strict consistency there is a lease on it. Otherwise it
//     reports Unsent, because a value that missed a delete would restore the key. An ask that
//     Compares has no such condition;
//   - reports Late for an outcome that arrives so long after the others that another command
//     may have run in between;
//   - opens a client's cas token for the Authority, and seals the cas of the reply that the
//     client gets for the replica that sent it (proxy/replication/castoken.go);
//   - retries a Held command with new states, until the client's deadline.
//
// # Replicas and the primary
//
// The configuration fixes the order of a key's replicas, and health never changes it
// (package table: Holders). The primary (Authority) is the replica whose reply counts: the
// first that is In for any instance, even if this proxy can't reach it or knows that it
// missed a write. If none is In, it is the first that is Warming. All proxies agree on it.
// So there is one primary at a time if each replica waits between its states: In, Leaving,
// Out, Returning, Warming, Settling, In. The primary changes while a replica is Leaving, or
// if the next state of a replica makes it the primary (Settling; Returning, if none is In).
// During the change, commands that the primary decides are Held. Two replicas must not
// change their state at once unless a third stays In.
//
// A dirty primary is repaired from another replica before it decides anything. If no other
// replica can be the source, the key is removed at the primary: a miss is better than an old
// value. An add does not remove the key, because its value may be the lock of another client.
// With ReadThrough the key is not removed either: another proxy may have written the value
// since, and this may be the only copy. The command then ends with an error, until a set or a
// delete makes the key known.
//
// # What goes where
//
// Followers are the replicas that repeat what the primary has done.
//
//	text            meta                   first                           then                                     reply to the client
//	get             mg                     one, by Policy.Read             the next on an error, and on a miss      hit, else miss, else error
//	                                                                       (see below)
//	gets            mg c                   primary                         others only to confirm a miss            primary's, sealed for it
//	gat gats        mg T, mg T c           primary                         followers: touch                         primary's
//	                mg N, mg R             primary                         nothing: one client may win              primary's
//	set             ms, ms MS              all                             a look again if a reply was late         primary's
//	  conditional                          all: look                       each: by the cas seen, or on a claim     primary's
//	add             ms ME                  a claim at each, the primary    the value replaces the claims: primary,  NOT_STORED of the first that refuses
//	                                       first, until one refuses        then the rest                            or has lost its claim, else STORED
//	replace         ms MR                  primary: look, then the value   STORED: a copy to the followers          primary's
//	                                       by its cas
//	append prepend  ms MA, ms MP           primary, with a look;           STORED: followers append, guarded        primary's
//	                                       followers: look
//	cas             ms C (S, R, E)         primary                         STORED: a copy to the followers          primary's
//	                ms C I                 primary: look                   token equal or newer: as ms C;           primary's
//	                                                                       token older: as md I
//	                ms C (A, P), ms MA N   primary                         STORED: followers append, without C, N   primary's
//	incr decr       ma, ma MD              primary; followers: look        primary: fetch; followers: the item,      primary's
//	                                                                       guarded
//	touch                                  primary                         followers: touch                         primary's
//	delete          md                     all: look, then a tombstone     all: a fresh tombstone; if one is gone,  DELETED if a readable replica had it
//	                                                                       start again; then remove all
//	  conditional                          all: look, then a tombstone by  as above                                 as above
//	                                       the cas seen, or a claim
//	                md C                   primary: a tombstone            HD: followers a tombstone; then as       primary's
//	                                                                       delete
//	                md I                   primary: look; followers: a     followers as delete. If the primary has  primary's; DELETED if a readable
//	                                       tombstone; primary: by the cas  nothing or a tombstone: all as delete    replica had it
//	                                       seen
//	                md I C                 primary                         DELETED: as md I                         primary's
//	                me                     primary, after a look           nothing                                  primary's
//	flush_all                              all                             -                                        OK if all reply OK
//	stats, version, mn, verbosity…         have no key, so no rule
//
// A follower repeats an append only on the value that the primary had before. Each follower is
// looked at while the primary is asked (Preview), and its step runs only if nothing has changed
// at the follower since. So a follower never has a value that the primary never had, even for a
// moment, and even if it runs the step late. The same is true for a counter, but the follower
// gets the primary's item. For that the item is fetched after the look, because the expected
// number is not proof: an incr and a decr of another proxy may have run at the follower already.
// If the primary's number has changed by then, the followers count as different. As the number at
// the follower was the one before the command, no check of the primary follows, unlike after
// other copies.
//
// A follower that differs afterwards gets a guarded copy of the primary's value, flags and
// TTL. It differs if it has another number or size, no such key, or an error where the
// primary had none. The copy reads the follower's cas, fetches from the primary, and stores
// the value at the follower if nothing has changed there in between. Otherwise it starts
// again, up to three times; for a counter, up to 250 times (see Rule.levels). If the primary
// has lost its own value, the copy does not remove the follower's value, which may be the
// last. If the primary's item expires within 2 s, a follower without an item gets no copy and
// counts as having the write: see Rule.takesExpiring. If the item is stale, or the command has
// set an exptime that has passed, the followers lose their items, and count as well. A replica
// that refuses to store a value that others have stored loses the key. If the primary has no
// such key and another replica has it, the copy runs in the other direction, and then the
// command again. If the primary refuses that value, a read or a touch runs at the replica that
// has it.
//
// The value of a cas or a replace also reaches the followers by such a copy. The value that
// it replaces is removed there in any case. If all replicas got the value at once, another
// proxy's delete could run everywhere first, and the followers would keep the value. For a
// moment only the primary has the value. A moment later the primary may have a newer value, or
// an old one that was restored from a follower. So the command succeeds only if the copy
// fetched the command's own value.
//
// # Why commands are replayed
//
// After an append or a prepend, and after each incr or decr, the followers could also get a guarded
// copy of the primary's item by the same way as after a cas. This was tried, and rejected for its
// cost. The requests of such a copy must follow one another: a look at the follower, a fetch, a
// store, and a check of the primary. On two replicas, with memcached 1.6.18, a command costs:
//
//	                        replayed                           copied
//	incr                    4 requests in 3 round trips        6 requests in 5 round trips
//	append                  4 requests in 2 round trips        6 requests in 5 round trips
//	append of 1 byte to a
//	value of 100,000 bytes  217 bytes to and from servers      201,457 bytes to and from servers
//
// If the looks are sent together with the command, one round trip less is possible. A counter has
// this already: its look foresees the number, and the fetch is both proof and source. In return
// little would become simpler, because only Join and Preview exist for replayed commands. Set, add,
// delete, touch and repairs need all other steps.
//
// A copied item also does not show whether the command's change is in it. A cas compares the
// fetched value with its own, and fails if they differ. An append can't do that: if another proxy
// has appended since, the values differ, although both changes are there. Without a comparison, an
// acknowledged append can disappear from all replicas. The model found this after 236 states. A
// short history is:
//
//	both replicas have "x"; a client appends "y"         the primary has "xy" and replies STORED
//	another proxy removes the key at the primary,        the primary has nothing
//	because the primary missed an earlier write
//	a repair copies the follower's value to the primary  both have "x"
//	the append looks at the follower, fetches "x" from   both have "x", the check finds it unchanged,
//	the primary, and stores it at the follower           and the client gets STORED
//
// A follower that appends by itself has "xy" after this history. The primary has "x" then, too, so
// this helps only until the next repair (see Limits). In the first 150,000 states of these commands,
// the acknowledged append was always at one replica at least. Two ways to recognize an append in a
// copy were tried:
//
//   - By the cas that the item got from the append. Then an append fails if another proxy appends
//     before the fetch. In the model, 61 % of the appends fail if two proxies append to one key in
//     random order without a pause. If followers append by themselves, 22 % do.
//   - By the appended bytes in the fetched value. With this, all scenes of TestMarks are correct, and
//     so are three seeds of each case of the simulation.
//
// For counters there is no such difference. The same history loses an increment with both methods,
// because followers that differ get a copy in any case. So counters are copied.
//
// The aim was to halve the kinds of requests (Step) and the states of a command (type stage). No method
// reaches that. The first two rows are from before the experiment:
//
//	                                    kinds of requests   states
//	append, incr and decr replayed      20                  23
//	nothing replayed                    16                  23
//	counters copied, appends replayed   15                  22, and 3 for keys that move
//	everything copied                   13                  the same
//
// From the second row to the third, other requests also replaced three more kinds: a request without a condition
// that only tests used, a look that compared the client's token, and a tombstone by the client's token. Copied
// appends would save Join and Preview. They would save no state, because deletes, adds, repairs and moves use
// each of them, and touch uses the one in which the followers are asked.
// These commands print the kinds, the states, and how many states the model visits with one and with two replicas:
//
//	go doc -u ./replicate Step
//	go doc -u ./replicate stage
//	go test ./replicate -run '^TestEveryOutcomeOf(One|Two)$' -v
//
// # Tombstones
//
// A tombstone (mark) is an empty item with special flags and a short TTL. It says that a
// command is in progress on the key, and that this replica does not know the key's value. A
// Claim stores a tombstone where there is no item (repairs, adds). A PlaceTombstone replaces
// whatever is there (deletes). A RefreshTombstone replaces what an earlier ask saw or stored,
// for example a tombstone that an append has changed because it could not see it. A tombstone
// also follows a set that timed out and had no condition.
//
// A command that places tombstones succeeds only if it finds its own tombstone at every
// replica in the end; otherwise it starts again. So it does not matter what removed a
// tombstone (a restart, an eviction, its TTL, another proxy), nor which proxy owns it. A proxy
// removes only its own tombstones, but any proxy may replace a tombstone by a value or a fresh
// tombstone. If a proxy stops, its tombstones expire.
//
// A delete places a tombstone at every replica, even if only one is in use: a plain delete
// would mistake an existing tombstone for the key. Once all tombstones are in place, no
// replica has a value, each earlier claim of a copy is lost, and no new claim can be made. So
// whatever is copied from then on was fetched after that moment. Then a fresh tombstone
// replaces each tombstone. A copy that has replaced a tombstone in between, with a value
// fetched before, now loses this value. The tombstones are removed only when all fresh ones
// are in place. So a delete that starts again has removed no tombstone before, and no client
// has added the key in between.
//
// If a command finds a tombstone at the primary, the other replicas are asked as for a miss.
// If one of them has the key, the owner of the tombstone gets some time (Wait). Then the
// tombstone is replaced.
//
// A request that may have run is not sent again, except reads: gets, gat and me go to the
// next replica if the primary fails. For a gat this costs a second lookup, and the replica
// that it did not reach expires earlier.
//
// # Late writes
//
// A write may reach a replica long after its client got an error: a network that was cut
// delivers what it had buffered, or a server that hung continues. Another proxy may have
// stored a newer value there in between. A late write must not remove that value. So a set
// and a delete with Command.Conditional replace at each replica only the item that they saw
// there:
//
//	         something is there           nothing is there
//	set      Store by its cas             Claim, then Store by the cas of the claim
//	delete   RefreshTombstone by its cas  Claim
//
// Every write that is acknowledged later reaches that replica, and leaves another cas or
// nothing. So the late write finds another cas there and does nothing. If there was no such
// write, the late write runs; its client got no reply that says otherwise. No tombstone
// follows a conditional write, so the previous value is not lost either. A replica with a
// write in doubt is repaired from the primary. If the primary has the write in doubt, the
// other replicas are repaired from the primary.
//
// Another proxy may write between a look and the request that depends on the look. Then the
// replica is looked at again, up to three times per command. After that the replica is asked
// without a condition (Forward, PlaceTombstone): others write there without a pause, and the
// replica has just replied. A set that has failed for its client stores nothing more: a look
// may show a newer value by then. (The model found this after 360 states.) It only removes what
// it has stored itself, by its cas: the tombstones of its claims, which would refuse the next add,
// and its value if the primary has refused it.
//
// The condition costs a set one round trip, or two if the key is new, and a delete one. The
// caller decides whether it is worth that. A conditional set must be acknowledged by all
// replicas. With AckQuorum or AckOne some replicas get the value after the reply. If a look
// came first, the client's next get could overtake the value there.
//
// The model has a proxy that is cut off, another proxy that stores or deletes after the
// failure, and two asks that run late (late_test.go). With the condition, all 235,097 states
// of nine pairs of commands are correct. Other rules lose the newer value at all replicas:
//
//	a set without a condition, then a tombstone                      after 150 states
//	the same, if the tombstone replaces only what that set stored    after 150 states: the late set replaces the newer value
//	a delete without a condition                                     after 435 states
//
// So it is not enough to bind the tombstone to the value of that set, by a cas that is
// chosen with the meta flag E. That would also need memcached 1.6.27. A look needs no more than
// tombstones do.
//
// An add, a replace and a cas are conditional anyway. A late append, incr or touch changes
// the value that it finds. Only a touch with an exptime in the past removes it.
//
// # Former holders
//
// If a new configuration moves keys to other replicas, a former holder may have the only copy
// of a key, or a copy that has been replaced since. Move removes the key from the former
// holder: the value is copied to the replicas as by Mend, and then removed by its cas. No proxy
// writes to a former holder any more. So a command may rely on the replicas alone if it first
// finds all former holders empty, and asks the replicas after that. A copy from a former holder
// still claims before it fetches, because others may have found that holder empty in between.
//
// # Keys that move
//
// Relocate runs a command on a key that has only one copy, while a new configuration moves the key
// from its old owner to its new owner. Package replication runs it
// (proxy/replication/relocate.go and proxy/replication/walk.go).
// It relies on the following stages of all proxies. As in package barrier, all are in one stage or in
// neighboring ones, and a stage ends when all proxies have been in it for a WAIT.
//
//	stage     reads                          mutations                      ends when also
//	announce  old owner                      old owner                      the new owner is swept: it has no key that it does not own
//	pause     old owner                      wait
//	move      new owner, on a miss the old   Relocate with Asked            the old owner is walked: it has nothing left (Depart)
//	settle    new owner                      Relocate with Emptied          the old owner is swept
//	cool      Relocate with Empty            Relocate with Empty            no placeholder can still live
//	turn      as move                        wait                           entered from move or settle; then move with the owners exchanged
//
// A placeholder is a tombstone at the new owner, as a Claim stores it. Each mutation stores one first,
// or finds the value. Then it empties the old owner. Only then has it an effect at the new owner:
//
//	set      claim, look | remove at the old owner | the set
//	delete   claim, look | look and remove at the old owner | drop what was seen or claimed
//	add      claim, look | fetch from the old owner | fill, or the value in place of the claim
//	others   claim, look | fetch from the old owner | fill | remove at the old owner | the command
//
// If the look finds a value, nothing is claimed or fetched. So while the old owner has a value, that
// is the key's value, whatever the new owner has. If the look finds the placeholder of another command,
// the command waits: that command may have emptied the old owner already. A request that meets another
// item than the one that was seen or claimed changes nothing, and the command begins again.
//
//   - A plain get is the rule of two replicas: the new owner is Filling, the old one is In. The
//     settlement asks for the backfill, which is a Mend.
//   - gets moves the key, like cas: a cas of the old owner means nothing at the new one, and could match
//     another item there.
//   - The reply of a delete is DELETED only if it has removed the value that it saw at the new owner, or a
//     value at the old owner while its placeholder was there. The old owner may have a placeholder from
//     before a reversal, which is no value.
//   - In settle the old owner can only have a key that a listing has left out. An add removes it, too.
//     Otherwise the old value would replace the new one after a reversal.
//   - A proxy in cool stores no placeholder, but knows that there may be some. Without this stage, a proxy
//     that serves the key like any other would show the placeholder of a proxy that is still in settle.
//   - A refused incr is believed only if the item is still the one that was seen before.
//   - A server may refuse a value, for example because it is too large there. Then a command fails.
//   - A proxy may sleep between two requests of a command. So before each request, the caller checks the deadline
//     of the command and its leases. If they have ended when the value is stored, the value is removed (Withdraw).
//
// Mode flush moves nothing. It needs neither placeholders nor Relocate, but a stage between announce
// and the new owners in which reads of moving keys miss, and their mutations wait. If reads asked the
// old owner until the end, a proxy that is one stage behind would return the old value after another
// one has acknowledged a set at the new owner.
//
// flush_all goes to both servers, and once more when both have replied: the second one removes what a
// backfill has stored at the new owner, from a fetch before the first one.
//
// relocate_test.go explores all this: one key, two servers, two or three proxies, the stages, the
// walker, a backfill, and one fault (a restart, a proxy that dies or loses its leases, a request that
// times out and arrives late, a listing that leaves out the key). The replies must have an order that
// explains them and the final value; only a plain read may miss. 27 rules are left out in turn; each of 30 cases
// finds an error then.
// Not explored: a key whose server is out or rejoins during the resize, the loss of the view record,
// cas tokens, TTLs, and two faults.
//
// The stages are those of package health/resize, with these differences: the sweep of announce is done in
// the stage Stable, and there is no stage turn, because a change back waits for the end. On a busy machine,
// one listing of 1 million keys of memcached 1.6.18 took 2.3 s and had 95 MB. Reads meanwhile waited 3.9 ms
// (p99; 0.2 ms without a listing), one of them 189 ms. So a walk remembers only keys that move, but many of them.
//
// A sweep in announce must not leave out a key. So a server with incomplete listings (memcached before
// 1.6.19) is listed until several listings have found nothing.
//
// # Keys of another pool
//
// FillFrom runs a command on a key that another pool, the source, may have (the setting fill_from). It is the rule of
// keys that move in move, with the source as an old owner that is never written. Removing the key at the old
// owner becomes storing the mark of the key: an item at the owner with another name. While there is a mark,
// the source counts as empty, and it is not asked.
//
//	get      owner | on a miss: look at the mark | without one: the source
//	set      claim, look | mark | the set
//	delete   claim, look | look at the mark, and mark | drop what was seen or claimed
//	add      claim, look | look at the mark | without one: fetch from the source | fill, or mark and the value in place of the claim
//	gets     claim, look | look at the mark | without one: fetch from the source | fill | the command
//	others   as gets, but the mark before the command
//	copy     claim | look at the mark | without one: fetch from the source | fill
//
// The mark is an item of its own. A tombstone in place of the value would be replaced by the next set, and
// when that value expires, the value of the source would be back.
//
//   - A copy looks at the mark after its claim. A mutation stores the mark while the owner has the value or
//     its own claim. So either the copy sees the mark, or the mutation waits for the copy, or the claim of the
//     copy is gone. Therefore a copy may store the value that the read has found before, and need not fetch it.
//   - A mutation with Empty stores the mark first, and then looks at the item. In the other order, a copy could
//     begin and end in between.
//   - A delete does not ask the source. It is answered with DELETED also if there was neither an item nor a mark.
//   - If the source does not answer, plain reads and gets miss. Other commands that need its value fail, without
//     an effect.
//
// fill_test.go explores this: one key, two proxies, three commands, a copy, and one fault (a proxy that dies, a
// request that times out and arrives late, a value that expires). No order of the commands may contain an older value
// of the source after a mutation. Rules are left out in turn. A mark that is lost brings the value of the source back:
// this is a limit of the setting.
//
// # When a miss is believed
//
// A miss at a complete replica (In) is believed at once if Policy.ReadThrough is off and
// every replica is In or Out. Otherwise the other readable replicas are asked, too. A replica
// may be empty because it is warming, or because an undo, an eviction or an unnoticed
// restart emptied it. This costs one lookup for each real miss. With ReadThrough a miss
// counts only if every replica that is not Out has reported it. Otherwise the read fails,
// because a replica that can't be asked may have the key.
//
// Configurations with replicas should turn ReadThrough on if values must not be lost
// (sessions). Turn it off for caches in which real misses are common.
//
//   - A warming replica alone never decides a miss while another replica could know better. If
//     all replicas report a miss, or the only others are Out or have lost the key, it is a miss.
//   - A tombstone proves nothing. With ReadThrough a read that found a tombstone fails while
//     another replica is dirty: the tombstone may have replaced what made that replica dirty.
//   - With ReadThrough a miss of unfilled replicas alone fails, too, while another replica is
//     dirty: another proxy may have written to the dirty replica since.
//   - With Fastest all replicas are asked anyway, and a miss waits for all.
//   - With ReadThrough an incr or an append that creates what is missing (N) asks the others
//     first: a primary that has evicted the key would create it again.
//
// # When a write is acknowledged
//
// Every replica that is not Out counts. AckAll needs all of them, AckQuorum more than half,
// AckOne the primary, and each of the three needs the primary. A replica that can't be asked
// (Leaving, Suspect) has not stored the write. If too few others are left, or this replica is
// the primary, the write is Held and nothing is sent. A replica that is Gone does not count:
// this instance reaches no server of its pool, so it can't learn what others see there. The
// replica is Dirty after the write.
//
// A set and a delete are settled when enough replicas have replied, all other commands when
// the copies are. With AckQuorum and AckOne an acknowledged write may be missing where
// another proxy reads. Only AckAll, or Read First with no failing replica, prevents that. A
// gat or mg T needs only the replica that replies: a read is not refused because of an
// exptime.
//
// A command that removes the key needs all replicas that count, whatever the policy
// acknowledges: a delete, a flush, and any command with an exptime that has passed
// (Command.Expires). A read that misses at the primary returns the value of a follower, and
// copies it back. So a follower that missed the removal would undo it, also with Read First.
// removes_test.go shows this: if one replica is enough, a get finds the removed value after
// 14 to 200 states with each of these commands.
//
// An add must be granted by every replica that is read, whatever the policy acknowledges. So
// two clients never both hold a lock, even if one replica was evicted or restarted empty, or
// the primary is changing. At a replica that is not read, a value does not refuse the add,
// but a tombstone does, because a delete is in progress. An add that is not acknowledged is
// undone where it was granted.
//
// # An add during a change of states
//
// With strict consistency, the success of a command does not count if a replica has changed its
// state since the command began: another proxy may already read a replica that lacks the write. An
// add that was stored then goes on in the new states (Continue):
//
//	the other replicas grant the add, as before; an item there is left alone
//	the primary is checked: it still has the value, with the cas of the add
//	the value replaces the new claims
//
// After the check it is certain that no delete had begun before the last claim. So the value is
// nowhere stored for a second time after a delete. If the primary has lost the value, another
// command has removed it, and the add fails. The value itself is never removed, because a client
// may have read it.
//
// shift_test.go explores this: two proxies, a replica that goes from In over Out to In, and an add
// beside a get, a delete, an add or a set. The replies must have an order that explains them. Only
// a read that has its reply before the add does may show the value early. If an add goes on,
// all explored states are correct. An add that fails and leaves its value is correct, too. But the
// lock of a client that got an error then remains until it expires. Other ways are wrong:
//
//	the value is removed by its cas, and the add begins again    after 935 states
//	the client gets STORED at once                               after 9,657 states
//	the add goes on without the check of the primary             after 42,370 states
//	the add goes on, and stores the value again if it is gone    after 29,197 states
//
// A short history of the first one is:
//
//	the add has its claims; the flush of a returning replica removes its claim there
//	the add stores its value at the primary, and a repair copies it to the other replica
//	the add removes its value at the primary, by its cas, and begins again
//	it finds the copy: the client gets NOT_STORED, and all replicas have its value
//
// # Cas tokens
//
// A replica's cas counts the writes of one process. So the number alone means nothing at
// another replica, nor at the same one after a restart. The token that a client gets is
// therefore sealed (proxy/replication/castoken.go) for an identity that consists of
//
//   - the network and the address of the replica that replied,
//   - the key, as servers know it,
//   - the start time and the process ID of that replica, from its stats,
//   - how often the replica was flushed before it rejoined, by its phase number.
//
// No part of the identity belongs to one proxy. So every proxy that has the same servers by the
// same addresses accepts the token, also after a restart of the proxy that sealed it, and in
// later releases. A token is valid until the item changes, another replica becomes the primary,
// or the replica that it is sealed for restarts or rejoins after an outage. Then the token
// matches nothing: the reply is EXISTS, even if no client has changed the value. A token
// matches a value that it was not issued for with a chance of one in 2^52. Until a proxy knows
// the start time of the primary's process, commands that use or return a token wait. A server
// that doesn't report its start time counts as one process for ever.
//
// # Limits
//
//   - Rules know nothing of each other. A proxy should run one at a time for a key, and the
//     commands of one client on a key in their order.
//   - Two proxies that set one key at once may leave replicas different until the next write
//     or repair.
//   - One proxy does not know which replicas another proxy has found dirty. While it repairs a
//     primary from another replica, a write of another proxy there may be lost.
//   - Whether an incr, append or cas without a reply has run is unknown; the followers are
//     repaired from the primary.
//   - If the primary evicts a counter between the incrs of two proxies, both clients may get
//     the same number. A Check by the cas of each incr that had a late reply would show this
//     (26,744 states of the model are correct with that Check). But if servers always reply
//     late, the Check would turn every incr that others run alongside into an error. So the
//     package has no such Check.
//   - Two proxies' deletes that reach the replicas in opposite orders each find the value at
//     another replica, then each other's tombstones: both clients get DELETED.
//   - A delete that other commands overtake three times at a replica no longer looks there first.
//     It may then reply NOT_FOUND although it has removed the value of an add that has just ended.
//   - An add whose value is in doubt at a follower removes its value at the primary after the client
//     got an error. A client that reads in between sees a value which is then gone.
//   - A tombstone refuses an add, whatever placed it: the claim of a repair, a delete, or a
//     touch that has extended the add's own claim (found by the model after 17, 45 and 68
//     states).
//   - memcached asks the first client that reads a stale item (md I) to rebuild it. If that
//     read is a look after a failed incr, no client is asked.
//   - A command with an exptime in the past removes the item, but it places no tombstones.
//     Another proxy that finds nothing at the primary in this moment may restore the value
//     from a follower.
//   - A value with a remaining TTL of 1 s is not copied to a replica that has nothing. So if the
//     primary has lost it, it counts as missing there already: see Rule.takesExpiring.
//   - A value that the primary has lost can return from a replica that a delete missed. This
//     happens only if that delete was not acknowledged.
//   - With AckQuorum and AckOne, a value may expire or be evicted at the primary while a follower
//     still lacks it. A read then returns the older value of that follower.
package replicate
