// Package ablation lists the rules of the engine that a test can turn off, to show that each of
// them is needed: without it, a simulation or a model must find a fault.
//
// Only tests construct a Set with rules in it; a test of the project's structure checks that.
package ablation

// Set is a set of rules that are turned off. The zero Set turns nothing off.
type Set struct {
	// Failover: the phases of a server (package health).
	EjectWait  bool // LEAVING becomes OUT at once
	ReturnWait bool // RETURN is flushed at once
	Flush      bool // RETURN becomes WARM without a flush
	Settle     bool // WARM becomes IN at once
	Out        bool // a server that replies again moves from LEAVING to RETURN
	OnlyCopy   bool // a silent server is ejected although another one lacks replicas
	Stranger   bool // any process at a server's address is accepted
	Departed   bool // a server that a reload adds back keeps the state that it had when it was removed

	// Stampede protection and tags (package guard).
	Late        bool // a miss after a wait that timed out is not remembered, so the client's set is not bound
	Failed      bool // a miss that replaces an error of the servers is not remembered, so the client's set is not bound
	Life        bool // sets after a miss require the cas that the miss saw, even after another process has started at the server's address
	Phase       bool // sets after a miss require the cas that the miss saw, even after the key has moved to another server
	Touch       bool // touch does not check whether the item is a placeholder
	Watch       bool // a lease holder that never fills its key is not detected
	CancelLease bool // when a client disconnects, the leases of all keys that it missed are canceled, also those that another client holds
	Stamp       bool // a set is stamped with the tag versions of the set, not of its miss
	Order       bool // a set does not check whether a tag that it names first is older than its miss

	// Replicated keys (package replication).
	Rest   bool // the other replicas get the client's set as soon as the primary has stored it, not a copy of what the primary has by then
	Former bool // the servers that had the key before a reload get no requests
	Pause  bool // writes do not pause before keys move away from their former servers
	Sight  bool // in strict pools, too, sets and deletes replace or remove whatever item a replica has, without reading it first
}
