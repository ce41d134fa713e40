// Package copied is how the guard knows a key of several copies.
//
// There the guard is a client of package copies: what it would ask the key's server is a
// step of its command. So the copies say who decides for the key, who takes part, what is
// held or repaired first, and when an answer still counts; the guard knows nothing of
// that, and no rule of the copies is made anew. A Copy is what it does know: which server
// has answered, and what its cas is worth.
//
//	get     mg as the route reads (read:): what is there and not due is served;
//	        else mg N R, which only the authority answers
//	set     after a miss: ms C at the authority; the others are copied to after it
//	delete  the delete of copies, behind a look: marks at all, then none
//
// A miss is of the authority alone. Its cas is the token that copies seals for the
// key at that server, in this life of its process and between two of its flushes. So a
// miss is worth nothing when the authority dies, comes back or changes: its set finds
// another number there. A new authority has no stub, and lets one client rebuild: one more for each
// such change.
//
// The others must not get the value of a bound set at once, as that of an ordinary set:
// a delete by another Ringside may have been done everywhere in between, and what was
// read before it would stand there behind it. They are copied to (replicate.Command.Bound):
// looked at or claimed, then the authority is asked, then filled if nothing came between. Had a
// delete been done at the follower before the look, it had been done at the authority before
// it was asked.
//
// A stub is nowhere but at the authority. Nobody copies it: a repair takes it for nothing there. A read
// that meets one at the member it asks goes on at the authority. A mark is a stub of
// somebody else: who meets one is held, and binds nobody. Who is held looks whether the
// stub is still there, and then asks anew for himself.
//
// A win that nobody has used is given back by removing the item at the authority, also one
// that is due: a soft-deleted one there would be read as fresh elsewhere. For the same
// reason there is no stale: md I is not done at all members at one moment, and a
// repair from one that has not heard of it would bring the value back.
//
// # What it does not do
//
// It asks nobody: package guard does, by Task.Step.
package copied
