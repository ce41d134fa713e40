// Package replicate decides which copies a command goes to and whose answer
// counts.
//
// It is pure: Begin makes the Rule of one command from a policy and the states
// of the key's members, Next says what to ask whom, Told takes what came of it,
// Settled says what the client gets and who must be repaired. It sees no
// socket, no clock, no key and no value. Whoever carries the asks out
//
//   - sends what Next gives until it gives nothing, after Begin and each Told;
//   - answers the client when Settled, and goes on until Over, since masks may
//     still grow: only then are Dirty, Clean, Undo and Repair complete;
//   - gives each ask a deadline, and tells InDoubt or Unsent when it passes;
//   - knows a mark by its flags and says Marked for it, to whatever shows flags;
//   - uses the cas that an ask has brought only while the connection stands that
//     has brought it: a server that was started anew gives the same numbers again.
//     An ask with such a Guard is not sent, and told as Exists;
//   - sends a Fetch only while nobody may have done without the member (In, Warming
//     or Settling, and in consistency strict with a lease on it), else tells Unsent: a
//     delete that left it out would come back with what it has;
//   - says Late of an answer that comes so long after the others that somebody may
//     have come between;
//   - opens a client's cas for the Authority, and seals one for the member whose
//     reply is the answer;
//   - begins anew with new states what is Held, up to the client's deadline.
//
// # Members and the authority
//
// A key's members come in an order that the configuration fixes and health
// never changes (package table: Holders). The authority is the first that is In for anybody,
// even if this proxy can't reach it or knows that it missed a write; if none is,
// the first that is Warming. All proxies agree on it, so there is one at a time
// as long as a member passes through its states with a wait between them:
// In, Leaving, Out, Returning, Warming, Settling, In. The authority changes hands
// where one is Leaving, or where the next state of one makes it the authority
// (Settling; Returning, where nobody is In): meanwhile what the authority decides
// is held. Two members must not change their state at once unless a third stays
// In.
//
// A dirty authority is repaired from another before it decides anything. If
// nobody is left who knows better, it loses the key: a miss, not an old value;
// but an add leaves there what is there, which may be another's lock. With ReadThrough it
// loses nothing, for what it has may have been written by another proxy since, and be the
// only copy: the command ends with an error, until a set or a delete makes the key known.
//
// # What goes where
//
//	text                  meta                    first asked             then                               answer
//	get                   mg                      one, by Policy.Read     the next on an error, and on a     hit > miss > error
//	                                                                      miss (see below)
//	gets                  mg c                    authority               others only to confirm a miss      authority's; sealed for it
//	gat gats              mg T, mg T c            authority               rest: touch                        authority's
//	                      mg N, mg R              authority               nobody: one may win                authority's
//	set                   ms, ms MS               all                     where one was late: looked again   authority's
//	  conditional                                 all: look               each by its cas, or on a claim     authority's
//	add                   ms ME                   claim at each, the      the value in the place of the      NOT_STORED of the first that refuses
//	                                              authority first, until  claim: authority, then rest        or has lost its claim, else STORED
//	                                              one refuses
//	replace               ms MR                   authority: look, then   STORED: the rest are copied to     authority's
//	                                              the value by its cas
//	append prepend        ms MA, ms MP            authority, and look;    STORED: rest the same, guarded     authority's
//	                                              rest: look
//	cas                   ms C (S, R, E)          authority               STORED: the rest are copied to     authority's
//	                      ms C I                  authority: look         the token fits, or is above: as ms C.   authority's
//	                                                                      Older: as md I
//	                      ms C (A, P), ms MA N    authority               STORED: rest append, without C, N  authority's
//	incr decr             ma, ma MD               authority; rest: look   authority: fetch; rest the same,   authority's
//	                                                                      guarded
//	touch                                         authority               rest: touch                        authority's
//	delete                md                      a mark at all, each     a fresh mark for each; one is not  DELETED if any that is read had it
//	                                              behind a look           there: all again; drop all
//	  conditional                                 all: look, then a mark  as above                           as above
//	                                              by its cas, or a claim
//	                      md C                    authority: the mark     HD: rest a mark, then as delete    authority's
//	                      md I                    authority: look; rest a  it is by the cas that was seen; then  authority's; DELETED if any that is read had it
//	                                              mark, then authority    rest as delete. Nothing or a mark there: all that
//	                      md I C                  authority               DELETED: as md I                   authority's
//	                      me                      authority, behind a look  nobody                           authority's
//	flush_all                                     all                     -                                  OK if all say so
//	stats, version, mn, verbosity…                are not about a key and have no rule
//
// What adds to a value is done by the rest only onto what the authority had before:
// each is looked at while the authority is asked (Preview), and nothing may come
// between that look and the deed. So no follower ever has what the authority never
// had, not for a moment, and not if it does the deed late. A count may find the number
// that it looks for although the rest have more or less: another proxy's counts up and
// down since have been done there already. So the authority's number is fetched between
// the look and the deed, and where it is another by then, the rest count as different.
//
// Whoever in the rest differs afterwards (another number or size, no such key, an
// error where the authority had none) gets a guarded copy of the authority's value
// with its flags and TTL: its cas there, Fetch from the authority, Fill there if nothing
// has happened in between, else the same again, three times at most, and of a counter as
// long as others count: see levels. What it has goes only for a copy, never because the
// authority has lost its own: then it may be the last. A member that refuses to store a
// value that others have stored loses the key. The same copy in the other direction, and
// then the command once more, is made when the authority says that it has no such key and
// another has it.
//
// The value of a cas or a replace comes to the rest by such a copy, too, and what it
// replaces goes there in any case. If all got it at once, another proxy's delete could come
// everywhere before, and the rest would be left with it. For a moment only the authority has
// it, and what it has a moment later may be newer, or have been brought back from the rest.
// So the command is told done only if what was fetched is its own value.
//
// # Marks
//
// A mark is an empty item with flags of its own and a short TTL. It says that
// somebody is at work on the key here, and that this member knows nothing. A
// Claim makes one in the place of nothing (repairs, adds), a Bury in the place of
// whatever there is (deletes), a Remark in the place of one that a command has
// changed because it could not see it; and one goes behind a set that timed out and had
// no condition.
//
// Who makes marks answers only if in the end it meets its own, at every member;
// else it begins again. So it matters neither what has disturbed one (a restart, an
// eviction, its TTL, another proxy) nor whose it is. Nobody removes one that is not
// its own, but anybody may put a value or a fresh mark in its place; what is left
// by who has stopped goes with its TTL.
//
// A delete leaves a mark at every member, also where only one is in use: a plain delete
// would take a mark that is there already for the key. When all stand there is no value
// anywhere, a copy that was claimed before has lost its claim and no claim can be
// made: what is copied after that was fetched after it. Then a fresh mark takes the
// place of each, so that whoever has taken one over meanwhile, with what was fetched
// before, has lost it; and only when all of those stand are they removed. So a delete
// that begins again has removed none before, and nobody has added the key meanwhile.
//
// Where a command finds a mark at the authority, the others are asked as for a
// miss. If one has the key, whoever has left the mark gets some time (Wait), and
// then it is taken over.
//
// Nothing that may have run is sent again, except reads: gets, gat and me go to
// the next member if the authority fails. That costs a gat a second look, and
// the copy that it didn't reach an earlier end.
//
// # Late writes
//
// A write may come to a member long after its client was told that it failed: a network
// that was cut delivers what it had kept, or a server that hung goes on. Another proxy may
// have stored a newer value there in between. A late write must not remove that value. So a
// set and a delete with Command.Conditional replace at each member only what they have seen
// there:
//
//	         something is there     nothing is there
//	set      Store by its cas       Claim, then Store by the cas of the claim
//	delete   Remark by its cas      Claim
//
// Every write that is acknowledged later reaches that member, and leaves another cas or
// nothing. So the late write finds another cas there and does nothing. If there was no such
// write, the late one is done. Its client has had no answer that says otherwise. Nothing
// goes behind it, so it does not cost the value of before either. A member that has it in doubt
// is made like the authority. If the authority has it in doubt, the others are made like that.
//
// Another proxy may write between a look and what builds on it. Then the member is looked at
// again, three times for each command. After that it is asked without a condition (Forward,
// Bury): others write there without a pause, and it has just answered. A set that has failed
// for its client sends nothing more, for a look may show a newer value by then (found by the
// model after 360 states).
//
// The condition costs a set one round trip, or two if the key is new, and a delete one. The
// caller decides whether it is worth that. A set must be acknowledged by all members: with
// AckQuorum or AckOne the rest get the value behind the answer, and a look in front of it
// would let the client's next get overtake it there.
//
// The model has a proxy that is cut off, another proxy that stores or deletes behind the
// failure, and two asks that run late (late_test.go). With the condition all 235,097 states of
// nine pairs of commands hold. Other rules lose the newer value at all members:
//
//	a set without a condition, and a mark behind it                after 150 states
//	the same, and the mark takes only what that set has stored     after 150 states, for the late set replaces the newer value
//	a delete without a condition                                   after 435 states
//
// So it is not enough to bind the mark to the value of its own set, by a cas that is chosen
// with E. That would need memcached 1.6.27, too; a look needs no more than marks do.
//
// An add, a replace and a cas are conditional anyway. A late append, incr or touch changes what
// it meets. Only a touch with a time that is over removes it.
//
// # Former holders
//
// Where keys get other members, a former holder may have the only copy of a key, or one
// that has been replaced since. Move lets the key leave it: what it has is copied to the
// members as by Mend, and then it loses that, by its cas. Nobody gives it anything any more.
// So whoever has found all former holders empty, and asks the members behind that, may let
// a command decide by the members alone, or believe that they have nothing. Whoever copies
// from a former holder meanwhile claims before it fetches, as ever: others may have found
// that holder empty.
//
// # When a miss is believed
//
// At a complete member (In), with Policy.ReadThrough off and every member In
// or Out: at once. With ReadThrough it counts only if every member that is not
// Out has said so: else it is an error, since who can't be asked may have it.
// Otherwise the other readable members are asked, at the price of one lookup for
// each real miss: a copy may be empty because it is warming, or because an undo, an
// eviction or an unnoticed restart emptied it. Copies
// that must not be lost (sessions) want ReadThrough on, so it is what a
// configuration should take where copies are asked for; off is for caches in
// which real misses are common. A warming member alone never decides a miss
// while another could know; where all say miss, or the only others are Out or
// have lost the key, it is a miss. A mark says nothing: with ReadThrough a read that met
// one is an error while another member is dirty, for the mark may stand where there was what
// made that one dirty; and so is a miss of those alone that are not filled, for another proxy
// may have written to the dirty one since. With Fastest all are asked anyway, and a miss
// waits for all. With ReadThrough a count or an append that makes what is missing (N)
// asks the others before, for an authority that has evicted the key would make it anew.
//
// # When a write is acknowledged
//
// Every member that is not Out counts. AckAll needs all of them, AckQuorum more
// than half, AckOne the authority, which all need. Whoever can't be asked
// (Leaving, Suspect) hasn't taken the write: if too few are left, or it is the
// authority, the write is Held and nothing is sent. One that is Gone doesn't count: this
// Ringside reaches no server of its pool, and so never hears what others see there. It
// is Dirty behind the write. set and delete are settled
// when enough have answered, all others when the copies are. With AckQuorum and
// AckOne an acknowledged write may be missing where another proxy reads, so
// only AckAll, or Read First with no member failing, keeps reads in step. gat
// and mg T need only the member that answers: a read is not refused for the
// sake of an exptime.
//
// An add needs the leave of every member that is read, not the authority's
// alone, whatever the policy acknowledges: so two clients never both hold a lock,
// though one copy was evicted or restarted empty, or the authority is changing. At a
// member that is not read a value is no refusal, and a mark is: a delete is at work.
// One that isn't acknowledged is undone where it was granted.
//
// # Cas tokens
//
// A member's cas counts the writes of one process, so the number alone means
// nothing at another member, nor at the same one when it was started anew. The
// token that a client gets is therefore sealed (package castoken) for an identity that
// is made of
//
//   - the network and the address of the member that answered,
//   - the key, as servers know it,
//   - when that member's process began, and its number, as its stats say,
//   - how often the member was flushed on its way back, by its phase number.
//
// Nothing in it is a proxy's own. So a token is good at every proxy that has the
// same servers by the same addresses, after a restart of the one that gave it,
// and in later releases; until the item changes, or another member becomes the
// authority, or the one that gave it is started anew or comes back from an
// outage. Then it fits nothing: EXISTS, also if nobody has changed the value. It
// never fits what it was not given for, but by one chance in 2^52. A proxy that has not
// heard yet since when the authority's process runs holds what has or wants a token until
// it has. A server that doesn't tell counts as one process for ever.
//
// # Limits
//
// Rules know nothing of each other. One proxy should run one at a time for a
// key, and what one client asks of a key in its order. Two proxies that set one key
// at once may leave copies different until the next write or repair. What is known
// to be dirty is known to one proxy: while it repairs an authority from another copy, a
// write of another proxy there may be lost. Of an unanswered incr, append or cas
// nobody knows whether it counts; the copies follow the authority.
// An authority that evicts a counter between two proxies' incrs may have them both told the
// same number. A Check by the cas of each incr that had a late answer would show it (26,744
// states of the model hold with that); but where servers always answer late it would turn
// every incr that others join in into an error, so there is none.
// Two proxies' deletes that meet the members in opposite orders find the value each at another
// member, then each other's marks: both are told Deleted. An add is refused by a mark, whoever
// has left it: by a repair's claim, a delete, a touch that has given the add's own claim a
// fresh life (found by the model after 17, 45 and 68 states).
// Who looks at a stale item (md I) is told by memcached to rebuild it, also if that is a
// look behind a count that has failed: then no client is.
// A value that the authority has lost can come back from a copy that a delete
// missed, but only if that delete was not acknowledged, or AckAll was not asked.
package replicate
