package stats

// This file merges the stats replies of several servers into one list.

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"ringside/proxy/wire"
)

// A statRule merges the values that servers sent for one name into one value. values has no entry
// for a server that did not send the name. servers is the number of servers. If the rule returns
// false, the name is left out of the merged reply.
type statRule func(values []string, servers int) (string, bool)

// About has the numbers of Ringside itself that are part of a merged reply.
type About struct {
	Pid, Loops     int
	Asked, Missing int
}

// generalRules are the rules for those names in a reply to `stats` that are not summed.
var generalRules = map[string]statRule{
	"uptime":           least,
	"time":             least,
	"version":          lowest,
	"pointer_size":     least,
	"accepting_conns":  least,
	"rusage_user":      seconds,
	"rusage_system":    seconds,
	"hash_power_level": buckets,
	"libevent":         same,

	"hash_is_expanding":              most,
	"slab_reassign_running":          most,
	"lru_crawler_running":            most,
	"time_since_server_cert_refresh": most,
	"extstore_memory_pressure":       most,
}

// itemsRules are the rules for `stats items`. The key is the part of the name after the number of
// the slab class.
var itemsRules = map[string]statRule{
	"age":          most,
	"age_hot":      most,
	"age_warm":     most,
	"evicted_time": leastNotZero, // the value 0 means that the slab class has evicted nothing
}

// slabsRules are the rules for `stats slabs`. The key is the part of the name after the number of
// the slab class.
var slabsRules = map[string]statRule{"chunk_size": same, "chunks_per_page": same}

// sizesRules are the rules for `stats sizes`, by name.
var sizesRules = map[string]statRule{"sizes_status": sameEverywhere}

// List is one kind of stats reply. It says how the replies of several servers are merged.
type List struct {
	word     string              // the first word of each line; other lines are dropped
	rules    map[string]statRule // the rules of those names that rule does not merge; in a list by class, the key is the part of the name after the number
	rule     statRule            // merges all other names
	byClass  bool                // names have the number of a slab class, and are sorted by it: names without a number are last
	classes  string              // the name of the line with the number of slab classes; empty: there is none
	ownLines bool                // pid and threads are Ringside's, and lines about the merged replies are added
	copied   bool                // lines are copied as they are
	most     uint64              // the maximum number of copied lines; 0: no limit
}

// The lists of the stats commands.
var (
	General  = &List{word: "STAT ", rules: generalRules, rule: total, ownLines: true}                       // stats
	Settings = &List{word: "STAT ", rule: sameEverywhere}                                                   // stats settings
	Items    = &List{word: "STAT ", rules: itemsRules, rule: total, byClass: true}                          // stats items
	Slabs    = &List{word: "STAT ", rules: slabsRules, rule: total, byClass: true, classes: "active_slabs"} // stats slabs
	Sizes    = &List{word: "STAT ", rules: sizesRules, rule: total, byClass: true}                          // stats sizes
	Prefixes = &List{word: "PREFIX ", rule: prefixCounts}                                                   // stats detail dump
)

// Cachedump returns the list of `stats cachedump`: the ITEM lines of all replies, at most limit
// lines; 0: no limit.
func Cachedump(limit uint64) *List { return &List{word: "ITEM ", copied: true, most: limit} }

// Merge merges the replies of several servers. Together they can have a million lines, so it works
// in steps.
//
// The names of all replies form a list without repeated names. They are in the order of the
// replies. A name that earlier replies lack is inserted after the name that precedes it in its own
// reply.
type Merge struct {
	list    *List
	about   About
	answers [][]byte         // the replies
	reply   int              // index of the reply that is being read
	read    int              // number of bytes of this reply that were read
	known   map[string]*stat // the names that were read
	head    stat             // its next is the first name
	at      *stat            // while lines are read: the name in the line before; then: the last name that was written
	sorted  bool             // all lines were read
	copies  uint64           // number of copied lines
	held    int              // memory of the names and their values, in bytes
}

// NewMerge returns a Merge of answers, the replies to the command of the list l.
func NewMerge(l *List, answers [][]byte, a About) *Merge {
	return &Merge{list: l, about: a, answers: answers, known: map[string]*stat{}}
}

// Held returns the size of the memory that m uses beside the replies, in bytes.
func (m *Merge) Held() int { return m.held }

// Step handles n more lines, and appends the finished part of the merged reply to dst. It returns
// true after the last line. A line that is read counts once. A line that is written counts once per
// value in it.
//
// Names are sorted by class in one step. Even for `stats sizes`, there are at most 32,768 of them
// where items have up to 1 MiB.
func (m *Merge) Step(dst []byte, n int) ([]byte, bool) {
	for ; m.reply < len(m.answers); n-- {
		if n <= 0 {
			return dst, false
		}
		dst = m.readLine(dst)
	}
	if !m.sorted {
		if m.sorted = true; m.list.byClass {
			m.sort()
		}
		m.at = &m.head
	}
	for ; m.at.next != nil; m.at = m.at.next {
		if n <= 0 {
			return dst, false
		}
		st := m.at.next
		n -= len(st.values)
		if value, ok := m.valueOf(st); ok {
			dst = appendLine(dst, m.list.word, st.name, value)
		}
	}
	if m.list.ownLines {
		dst = AppendStat(dst, "ringside_servers", strconv.Itoa(m.about.Asked))
		dst = AppendStat(dst, "ringside_servers_missing", strconv.Itoa(m.about.Missing))
	}
	return append(dst, wire.EndLine...), true
}

// readLine reads the next line. It appends the line to dst if lines are copied.
func (m *Merge) readLine(dst []byte) []byte {
	answer, from := m.answers[m.reply], m.reply
	line := answer[m.read:]
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i+1]
	}
	if m.read == 0 {
		m.at = &m.head
	}
	if m.read += len(line); m.read == len(answer) {
		m.reply, m.read = from+1, 0
	}
	switch {
	case !m.list.copied:
		m.add(line, from)
	case bytes.HasPrefix(line, []byte(m.list.word)):
		dst = append(dst, line...)
		if m.copies++; m.copies == m.list.most {
			m.reply = len(m.answers)
		}
	}
	return dst
}

// add adds the name and value in line, which the reply with the given index has.
func (m *Merge) add(line []byte, from int) {
	name, value, ok := parseLine(line, m.list.word)
	if !ok {
		return
	}
	st := m.known[name]
	if st == nil {
		st = &stat{name: name, from: -1, next: m.at.next}
		m.known[name], m.at.next = st, st
		m.held += nameSize
	}
	if st.from < from { // a reply should have each name once; if it repeats a name, only the first value counts
		st.values, st.from = append(st.values, value), from
		m.held += len(line) + valueSize
	}
	m.at = st
}

// sort sorts the names by class.
func (m *Merge) sort() {
	var list []*stat
	active := map[uint64]bool{}
	for st := m.head.next; st != nil; st = st.next {
		if st.class, st.field = classOf(st.name); st.class != noClass {
			active[st.class] = true
		}
		list = append(list, st)
	}
	slices.SortStableFunc(list, func(a, b *stat) int { return cmp.Compare(a.class, b.class) })
	last := &m.head
	for _, st := range list {
		if last.next, last = st, st; st.name == m.list.classes {
			st.values = []string{strconv.Itoa(len(active))}
		}
	}
	last.next = nil
}

// valueOf merges the values of st.
func (m *Merge) valueOf(st *stat) (string, bool) {
	name := st.name
	switch {
	case m.list.byClass:
		name = st.field
	case m.list.ownLines && name == "pid":
		return strconv.Itoa(m.about.Pid), true
	case m.list.ownLines && name == "threads":
		return strconv.Itoa(m.about.Loops), true
	}
	rule := m.list.rules[name]
	if rule == nil {
		rule = m.list.rule
	}
	return rule(st.values, len(m.answers))
}

// noClass is the result of classOf for a name without a number. It is larger than every number, so
// such a name is last.
const noClass = math.MaxUint64

// classOf splits a name such as "items:5:age", "5:chunk_size" or "96". It returns the number and
// the part of the name after it.
func classOf(name string) (class uint64, field string) {
	number, field, _ := strings.Cut(strings.TrimPrefix(name, "items:"), ":")
	class, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return noClass, name
	}
	return class, field
}

// stat is one name of a stats reply, with the values that servers sent for it.
type stat struct {
	name   string
	values []string
	from   int // index of the server that sent the value that was added last
	next   *stat

	class uint64 // in a list by class: see classOf
	field string
}

// The memory of a stat in Merge.known, and that of one more value, in bytes, without the text.
const (
	nameSize  = int(unsafe.Sizeof(stat{})) + 64
	valueSize = 2 * int(unsafe.Sizeof(""))
)

// ParseStat parses a line of the form STAT <name> <value>. The value may be empty or contain
// spaces.
func ParseStat(line []byte) (name, value string, ok bool) { return parseLine(line, "STAT ") }

// parseLine parses a line that begins with word, and then has a name and a value.
func parseLine(line []byte, word string) (name, value string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimRight(string(line), "\r\n"), word)
	name, value, _ = strings.Cut(rest, " ")
	return name, value, ok && name != ""
}

// AppendStat appends a line STAT <name> <value>. If the name or the value contains CR or LF, they
// are replaced by spaces.
func AppendStat(dst []byte, name, value string) []byte { return appendLine(dst, "STAT ", name, value) }

func appendLine(dst []byte, word, name, value string) []byte {
	at := len(dst)
	dst = append(append(append(append(dst, word...), name...), ' '), value...)
	for i, c := range dst[at:] {
		if c == '\r' || c == '\n' {
			dst[at+i] = ' '
		}
	}
	return append(dst, wire.CRLF...)
}

// numbers parses values as integers. It returns false if one of them is not an integer or is
// negative.
func numbers(values []string) ([]uint64, bool) {
	list := make([]uint64, len(values))
	for i, v := range values {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return nil, false
		}
		list[i] = n
	}
	return list, true
}

// Decimal returns n as decimal text.
func Decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// common returns the value that all servers have sent. It returns false if their values differ.
func common(values []string, _ int) (string, bool) {
	return values[0], !slices.ContainsFunc(values, func(v string) bool { return v != values[0] })
}

// same returns the value that all servers have sent, or the text mixed if their values differ.
func same(values []string, servers int) (string, bool) {
	if v, ok := common(values, servers); ok {
		return v, true
	}
	return "mixed", true
}

// sameEverywhere returns the value that all servers have sent. It returns the text mixed if values
// differ or if a server has sent none.
func sameEverywhere(values []string, servers int) (string, bool) {
	if len(values) < servers {
		return "mixed", true
	}
	return same(values, servers)
}

// ofIntegers merges values with the function one if all are integers. Otherwise it returns the
// common value, or false if the values differ.
func ofIntegers(values []string, servers int, one func([]uint64) uint64) (string, bool) {
	list, ok := numbers(values)
	if !ok {
		return common(values, servers)
	}
	return Decimal(one(list)), true
}

// total returns the sum of the values.
func total(values []string, servers int) (string, bool) { return ofIntegers(values, servers, sum) }

// sum returns the sum of list, or the largest uint64 if the sum is larger.
func sum(list []uint64) (total uint64) {
	for _, n := range list {
		var carry uint64
		if total, carry = bits.Add64(total, n, 0); carry > 0 {
			return math.MaxUint64
		}
	}
	return total
}

// least returns the smallest of the values.
func least(values []string, servers int) (string, bool) {
	return ofIntegers(values, servers, slices.Min[[]uint64])
}

// leastNotZero returns the smallest of the values that are not 0. It returns 0 only if all values
// are 0.
func leastNotZero(values []string, servers int) (string, bool) {
	return ofIntegers(values, servers, func(list []uint64) uint64 {
		return slices.MinFunc(list, func(a, b uint64) int { return cmp.Compare(a-1, b-1) }) // for 0, a-1 wraps around to the largest number, so 0 is last
	})
}

// most returns the largest of the values, as the server has formatted it.
func most(values []string, servers int) (string, bool) {
	best, top := "", math.Inf(-1)
	for _, v := range values {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return common(values, servers)
		}
		if n > top {
			best, top = v, n
		}
	}
	return best, best != ""
}

// seconds returns the sum of values that are times in seconds, such as 0.005469.
func seconds(values []string, servers int) (string, bool) {
	all := 0.0
	for _, v := range values {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return common(values, servers)
		}
		all += n
	}
	return fmt.Sprintf("%.6f", all), true
}

// buckets merges the sizes of hash tables. A value is the size of one table, as a power of two. The
// result is the size of all tables together, as a power of two.
func buckets(values []string, servers int) (string, bool) {
	return ofIntegers(values, servers, func(list []uint64) uint64 {
		for i, power := range list {
			list[i] = 1 << min(power, 63)
		}
		return uint64(bits.Len64(sum(list)) - 1)
	})
}

// lowest returns the lowest memcached version, as the server has formatted it.
func lowest(values []string, servers int) (string, bool) {
	var low wire.Release
	text := ""
	for _, v := range values {
		if r, ok := wire.ParseVersion([]byte(v)); ok && (text == "" || r.Older(low)) {
			low, text = r, v
		}
	}
	if text == "" {
		return common(values, servers)
	}
	return text, true
}

// prefixCounts sums values of the form get n hit n set n del n. It ignores other values.
func prefixCounts(values []string, _ int) (string, bool) {
	words := [...]string{"get ", "hit ", "set ", "del "}
	var all [len(words)]uint64
	found := false
next:
	for _, v := range values {
		var counts [len(words)]uint64
		for i, word := range words {
			rest, ok := strings.CutPrefix(v, word)
			number, rest, _ := strings.Cut(rest, " ")
			n, err := strconv.ParseUint(number, 10, 64)
			if !ok || err != nil {
				continue next
			}
			counts[i], v = n, rest
		}
		if v != "" {
			continue
		}
		found = true
		for i, n := range counts {
			all[i] = sum([]uint64{all[i], n})
		}
	}
	return fmt.Sprintf("get %d hit %d set %d del %d", all[0], all[1], all[2], all[3]), found
}
