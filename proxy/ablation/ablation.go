// Package ablation lists the rules of the engine that a test can turn off, to show that each of
// them is needed: if a rule is off, a simulation or a model must find a fault.
//
// Only tests construct a Set with rules in it; a test of the project's structure checks that.
package ablation

// Set is a set of rules that are turned off. The zero Set turns nothing off.
type Set struct {
	// The rules of failover, which concern the phases of a server (package health).
	EjectWait  bool // if set, a server moves from LEAVING to OUT at once
	ReturnWait bool // if set, a server that enters RETURN is flushed at once
	Flush      bool // if set, a server moves from RETURN to WARM without a flush
	Look       bool // if set, an elected proxy flushes a server without checking whether another proxy has flushed it since the election
	Early      bool // if set, commands change the keys of a server in WARM although other proxies may know it as in RETURN, and pings are not more frequent then
	Settle     bool // if set, a server moves from WARM to IN at once
	Out        bool // if set, a server that replies again moves from LEAVING to RETURN
	OnlyCopy   bool // if set, a silent server is ejected although another server lacks replicas
	Memory     bool // if set, a server that refuses connections counts as empty although it has restartable memory
	Restart    bool // if set, a server with restartable memory is ejected after the same time as another silent server
	Peers      bool // if set, a proxy does not consider which servers lack replicas as other instances report
	Stranger   bool // if set, any process that listens at a server's address is accepted as that server
	Departed   bool // if set, a server that a reload adds back keeps the state that it had when it was removed
	Removed    bool // if set, a server that a reload of another instance has removed rejoins before all instances have the same list
	Stand      bool // if set, a view record of an instance with another list is overwritten at once
	Told       bool // if set, a reload that removes a server does not wait with writes until other instances know that

	// The rules of a change of the server list (package health/resize).
	Sweep      bool // if set, servers that gain keys are not emptied, and old owners neither
	Clear      bool // if set, a stage ends before all instances know it
	Announced  bool // if set, an instance is like one of a release without announcements of a pause
	Short      bool // if set, leases are not short while a pause is announced, or a server is in RETURN
	Begun      bool // if set, a pause is short although it was not announced
	Recall     bool // if set, an announcement is not taken back
	Retreat    bool // if set, a change to a server that is out is not reversed for a further list
	Returns    bool // if set, the other servers of a list are given up although one of them has just begun to answer
	Names      bool // if set, a server that joins shares the entry of the server whose name it will have
	Force      bool // if set, an instance uses its own list although its peers use another one
	Substitute bool // if set, a key whose server is out is served by its substitute server although another instance may use another one
	Enough     bool // if set, leases on servers that are OUT and removed are needed
	Hang       bool // if set, the servers of both lists count together when most of them hang
	Leaves     bool // if set, commands on a key that moves do not empty its old owner, and those on a key of a pool that fills leave no mark

	// The rules of stampede protection and tags (package guard).
	Late        bool // if set, a miss after a wait that timed out is not remembered, so the set that the client sends next is not bound
	Failed      bool // if set, a miss that replaces an error of the servers is not remembered, so the set that the client sends next is not bound
	Life        bool // if set, a set requires the cas that its miss has read, even after another process has started at the server's address
	Phase       bool // if set, a set requires the cas that its miss has read, even after the key has moved to another server
	Touch       bool // if set, touch does not check whether the item is a placeholder
	Watch       bool // if set, a client with a lease that never stores the value is not detected
	CancelLease bool // if set, when a client disconnects, the leases of all keys that it missed end, also those that another client has
	Stamp       bool // if set, a value is stored with the tag versions at the time of the set, not of its miss
	Order       bool // if set, a set does not check whether a tag that its miss did not read has been invalidated since the miss

	// The rules of replicated keys (package replication).
	Former bool // if set, the servers that had a key before a reload get no requests for the key during a handover
	Pause  bool // if set, writes do not pause before keys move to other servers in a handover
	Sight  bool // if set, in pools with strict consistency, sets and deletes change any item of a replica, without reading it first
}
