package roll

// This file implements the item that lists the instances of a pool.

import (
	"bytes"
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Instance describes one instance.
type Instance struct {
	ID       uint64 // random number of the process: a restarted instance has another ID
	Name     string // name of the instance, for display
	Version  string
	Config   uint64 // hash of the instance's pools and routes
	Copies   uint64 // hash of the instance's placement of replicas; 0: keys have no replicas
	Suspects string // names of the servers that the instance suspects, separated by spaces; truncated if too long
	Lacks    string // names of the servers that lack replicas, in the format of Suspects
	Round    uint64 // when the instance wrote its entry, in seconds on a clock of its own that only grows
	Silent   int    // for how many rounds of this process Round has not grown; not stored on servers
	Grows    bool   // Round has grown since this process first read the entry; not stored on servers
}

// Ended is the Round of an instance that signs off because it ends.
const Ended = math.MaxUint64

// Limits of the list of instances. Some are numbers of rounds: in a round an instance reads and
// writes the list once.
const (
	Homes     = 2   // number of servers that store the list of instances
	Tries     = 3   // maximum attempts to write the list of instances in a round, if other instances write the list in between
	Most      = 200 // maximum number of instances in the list
	Life      = 600 // TTL of the list of instances, in seconds
	MostBytes = 64 << 10

	usual      = 50 // up to this number of instances, rounds have their shortest length, 5 s
	mostName   = 64
	mostText   = 24 // maximum length of an instance's version
	mostNames  = 96 // maximum length of Instance.Suspects and of Instance.Lacks
	silent     = 3  // number of rounds without a change of its entry after which an instance counts as gone
	remembered = 10 // number of rounds for which an instance that is gone is remembered
)

// Pause returns the time until this instance next reads and writes the list of instances (one
// round). heard is the number of known instances.
func Pause(heard int) time.Duration {
	return 5*time.Second + time.Duration(max(0, heard-usual))*100*time.Millisecond
}

// Place returns the rank of a server. The servers with the lowest ranks store the list of
// instances.
func Place(server string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(server))
	return h.Sum64()
}

// Call is the list of the instances of a pool, as one instance has read it. The zero value is an
// empty list.
type Call struct {
	Bad   int // items and entries that could not be parsed, so far
	heard map[uint64]*Instance
	full  bool // the list that was read last had the maximum length, and did not contain this instance
}

// Hear adds to c the instances in value, a list that was read from a server. self is the ID of this
// instance.
func (c *Call) Hear(value []byte, self uint64) {
	fields := bytes.Split(value, []byte{' '})
	c.full = false
	if len(value) > MostBytes || string(fields[0]) != magic {
		c.Bad++
		return
	}
	if c.heard == nil {
		c.heard = map[uint64]*Instance{}
	}
	mine := false
	for i, f := range fields[1:] {
		e, ok := parse(f)
		switch {
		case !ok || i >= Most:
			c.Bad++
		case e.ID == self:
			mine = true
		default:
			c.take(e)
		}
	}
	c.full = !mine && len(fields) > Most
}

func (c *Call) take(e Instance) {
	is := c.heard[e.ID]
	switch {
	case is == nil && len(c.heard) < 2*Most:
		if e.Round == Ended { // so this instance does not write the entry, and it disappears from the list
			e.Silent = silent + 1
		}
		c.heard[e.ID] = &e
	case is != nil && e.Round > is.Round:
		*is = e
		is.Grows = true
	}
}

// NextRound starts the next round of reading and writing the list of instances.
func (c *Call) NextRound() {
	for id, e := range c.heard {
		if e.Silent++; e.Silent > silent+remembered {
			delete(c.heard, id)
		}
	}
}

// Here returns the instances that still write their entries, sorted by name. This instance is not
// among them.
func (c *Call) Here() (list []Instance) {
	return slices.DeleteFunc(c.written(), func(e Instance) bool { return e.Round == Ended })
}

// Lacks reports whether an instance has published that a server lacks replicas. An instance that has ended counts
// for as long as one that is silent.
func (c *Call) Lacks(server string) bool {
	return slices.ContainsFunc(c.written(), func(e Instance) bool { return e.SaysLacks(server) })
}

// written returns the instances whose entries this instance writes, sorted by name. They are those that Here returns, and those that
// have ended: other instances must read that they have.
func (c *Call) written() (list []Instance) {
	for _, e := range c.heard {
		if e.Silent <= silent {
			list = append(list, *e)
		}
	}
	slices.SortFunc(list, func(a, b Instance) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list
}

// Runs reports whether the instance e has written its entry in one of the last two rounds. Here also returns
// instances that have ended a few rounds ago, or before this process has started.
func (e *Instance) Runs() bool { return e.Grows && e.Silent <= 1 } // the rounds of two instances are not in step

// Apart returns the name of an instance with another placement of replicas than this instance, or
// "" if there is none. copies is the hash of this instance's placement.
func (c *Call) Apart(copies uint64) string {
	for _, e := range c.Here() {
		if e.Copies != copies {
			return cmp.Or(e.Name, "another instance")
		}
	}
	return ""
}

const magic = "rc1"

// Item returns the list of instances to write: self, which is the entry of this instance, and all
// instances that still write their entries or have signed off lately. It returns false if this instance must not write in this
// round, because the list is full. chance is a random number.
func (c *Call) Item(self Instance, chance uint64) ([]byte, bool) {
	list := c.written()
	if len(list) >= Most {
		if c.full && chance%20 != 0 {
			return nil, false
		}
		for len(list) >= Most {
			chance = chance*6364136223846793005 + 1442695040888963407
			list = slices.Delete(list, int(chance>>33)%len(list), int(chance>>33)%len(list)+1)
		}
	}
	b := append(make([]byte, 0, 64*(len(list)+1)), magic...)
	for _, e := range append(list, self) {
		b = e.append(b)
	}
	return b, true
}

func appendText(b []byte, text string, most int) []byte {
	return AppendText(b, text[:min(len(text), most)], "=,")
}

// Shortened returns e with its name and version cut to their maximum length in the list of instances.
func (e Instance) Shortened() Instance {
	e.Name, e.Version = e.Name[:min(len(e.Name), mostName)], e.Version[:min(len(e.Version), mostText)]
	return e
}

func (e *Instance) append(b []byte) []byte {
	b = strconv.AppendUint(append(b, ' '), e.ID, 36)
	b = appendText(append(b, '='), e.Name, mostName)
	b = appendText(append(b, ','), e.Version, mostText)
	b = strconv.AppendUint(append(b, ','), e.Config, 36)
	b = strconv.AppendUint(append(b, ','), e.Round, 36)
	if e.Suspects != "" || e.Lacks != "" || e.Copies != 0 {
		b = appendText(append(b, ','), e.Suspects, mostNames)
	}
	if e.Lacks != "" || e.Copies != 0 {
		b = appendText(append(b, ','), e.Lacks, mostNames)
	}
	if e.Copies != 0 {
		b = strconv.AppendUint(append(b, ','), e.Copies, 36)
	}
	return b
}

// SaysLacks reports whether the instance e has published that a server lacks replicas. It also
// returns true if the published list of such servers may be truncated.
func (e *Instance) SaysLacks(server string) bool {
	return len(e.Lacks) >= mostNames || slices.Contains(strings.Fields(e.Lacks), server)
}

// AppendText escapes text for use in an item or a key. Bytes outside the printable
// ASCII range, the percent sign, and the bytes in signs become %XX.
func AppendText(b []byte, text, signs string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(text) {
		if c := text[i]; c > ' ' && c < 0x7f && c != '%' && strings.IndexByte(signs, c) < 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}

// parse parses one entry of the list of instances, in the format of Instance.append.
func parse(f []byte) (e Instance, ok bool) {
	id, rest, ok := bytes.Cut(f, []byte{'='})
	parts := bytes.Split(rest, []byte{','})
	if !ok || len(parts) < 4 || len(parts) > 7 {
		return e, false
	}
	good := true
	number := func(b []byte) (v uint64) {
		v, err := strconv.ParseUint(string(b), 36, 64)
		good = good && err == nil
		return v
	}
	text := func(b []byte, most int) string {
		t, ok := Unescape(b)
		good = good && ok && len(t) <= most
		return t
	}
	e = Instance{ID: number(id), Name: text(parts[0], mostName), Version: text(parts[1], mostText), Config: number(parts[2]), Round: number(parts[3])}
	if len(parts) > 4 {
		e.Suspects = text(parts[4], mostNames)
	}
	if len(parts) > 5 {
		e.Lacks = text(parts[5], mostNames)
	}
	if len(parts) > 6 {
		e.Copies = number(parts[6])
	}
	return e, good
}

// Unescape decodes text in which bytes are escaped as %XX.
func Unescape(b []byte) (string, bool) {
	text := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '%' {
			text = append(text, b[i])
			continue
		}
		if i+3 > len(b) {
			return "", false
		}
		c, err := strconv.ParseUint(string(b[i+1:i+3]), 16, 8)
		if err != nil {
			return "", false
		}
		text = append(text, byte(c))
		i += 2
	}
	return string(text), true
}
