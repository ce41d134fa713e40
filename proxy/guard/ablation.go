package guard

// Rules that tests leave out.

// Ablation leaves rules of the guard out, for tests that show what each is for. The
// zero Ablation leaves out nothing.
type Ablation struct {
	Late     bool // who is told a miss because its wait is over has no ticket
	Failed   bool // nor has who is told one because no server has answered
	Life     bool // a ticket is good for whatever process is at the server's address
	Phase    bool // and wherever the key is by now
	Touch    bool // touch does not look whether there is a stub
	Watch    bool // nobody sees that a winner does not come back
	GiveBack bool // all who have missed give back what they have seen
	Alike    bool // an ambiguous set goes out with one of several tickets that differ
	Newest   bool // or with the newest of them
	CasOnly  bool // tickets are alike whose cas is
	Keep     bool // an ambiguous set that is refused leaves what is there
	KeepStub bool // or at least a stub
	Doubt    bool // a ticket that an ambiguous set has used is used up
	Stamp    bool // a set has the versions that tags have then, not at its miss
	Order    bool // nobody looks whether a tag that a set names first is older than its miss
}
