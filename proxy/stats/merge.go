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

// MergeGeneral merges the replies of several servers to `stats` and appends the result to dst.
func MergeGeneral(dst []byte, answers [][]byte, a About) []byte {
	for _, st := range union(answers) {
		value, ok := st.apply(generalRules[st.name], len(answers))
		switch st.name {
		case "pid":
			value, ok = strconv.Itoa(a.Pid), true
		case "threads":
			value, ok = strconv.Itoa(a.Loops), true
		}
		if ok {
			dst = AppendStat(dst, st.name, value)
		}
	}
	dst = AppendStat(dst, "ringside_servers", strconv.Itoa(a.Asked))
	dst = AppendStat(dst, "ringside_servers_missing", strconv.Itoa(a.Missing))
	return append(dst, wire.EndLine...)
}

// MergeSettings merges the replies of several servers to `stats settings` and appends the result to
// dst.
func MergeSettings(dst []byte, answers [][]byte, _ About) []byte {
	for _, st := range union(answers) {
		value, _ := sameEverywhere(st.values, len(answers))
		dst = AppendStat(dst, st.name, value)
	}
	return append(dst, wire.EndLine...)
}

// MergeItems merges the replies of several servers to `stats items` and appends the result to dst.
func MergeItems(dst []byte, answers [][]byte, _ About) []byte {
	return mergeClasses(dst, union(answers), itemsRules, len(answers))
}

// MergeSizes merges the replies of several servers to `stats sizes` and appends the result to dst.
func MergeSizes(dst []byte, answers [][]byte, _ About) []byte {
	return mergeClasses(dst, union(answers), sizesRules, len(answers))
}

// MergeSlabs merges the replies of several servers to `stats slabs` and appends the result to dst.
func MergeSlabs(dst []byte, answers [][]byte, _ About) []byte {
	list := union(answers)
	active := map[uint64]bool{}
	for _, st := range list {
		if class, _ := classOf(st.name); class != noClass {
			active[class] = true
		}
	}
	for _, st := range list {
		if st.name == "active_slabs" {
			st.values = []string{strconv.Itoa(len(active))}
		}
	}
	return mergeClasses(dst, list, slabsRules, len(answers))
}

// mergeClasses merges the values of each name in list and appends them. It sorts the names by the
// number in them, and names without a number are last. The key of rules is the part of a name after
// the number.
func mergeClasses(dst []byte, list []*stat, rules map[string]statRule, servers int) []byte {
	slices.SortStableFunc(list, func(a, b *stat) int {
		classA, _ := classOf(a.name)
		classB, _ := classOf(b.name)
		return cmp.Compare(classA, classB)
	})
	for _, st := range list {
		_, field := classOf(st.name)
		if value, ok := st.apply(rules[field], servers); ok {
			dst = AppendStat(dst, st.name, value)
		}
	}
	return append(dst, wire.EndLine...)
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
}

// apply merges the values of all servers by the rule r. If r is nil, it sums them.
func (st *stat) apply(r statRule, servers int) (string, bool) {
	if r == nil {
		r = total
	}
	return r(st.values, servers)
}

// union lists the names of all replies, each once. They are in the order of the replies. A name
// that earlier replies lack is inserted after the name that precedes it in its own reply.
func union(answers [][]byte) (list []*stat) {
	var head stat
	known := map[string]*stat{}
	for i, answer := range answers {
		at := &head
		for line := range bytes.Lines(answer) {
			name, value, ok := ParseStat(line)
			if !ok {
				continue
			}
			st := known[name]
			if st == nil {
				st = &stat{name: name, from: -1, next: at.next}
				known[name], at.next = st, st
			}
			if st.from < i { // a reply should have each name once; if it repeats a name, only the first value counts
				st.values, st.from = append(st.values, value), i
			}
			at = st
		}
	}
	for st := head.next; st != nil; st = st.next {
		list = append(list, st)
	}
	return list
}

// ParseStat parses a line of the form STAT <name> <value>. The value may be empty or contain
// spaces.
func ParseStat(line []byte) (name, value string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimRight(string(line), "\r\n"), "STAT ")
	name, value, _ = strings.Cut(rest, " ")
	return name, value, ok && name != ""
}

// AppendStat appends a line STAT <name> <value>. If the name or the value contains CR or LF, they
// are replaced by spaces.
func AppendStat(dst []byte, name, value string) []byte {
	at := len(dst)
	dst = append(append(append(append(dst, "STAT "...), name...), ' '), value...)
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

// MergePrefixes merges the replies of several servers to `stats detail dump` and appends the result
// to dst. It sums lines of the form PREFIX <prefix> get n hit n set n del n.
func MergePrefixes(dst []byte, answers [][]byte, _ About) []byte {
	const words = 10
	var order []string
	counts := map[string]*[4]uint64{}
	for _, answer := range answers {
		for line := range bytes.Lines(answer) {
			f := strings.Fields(string(line))
			if len(f) != words || f[0] != "PREFIX" {
				continue
			}
			n, ok := numbers([]string{f[3], f[5], f[7], f[9]})
			if !ok {
				continue
			}
			c := counts[f[1]]
			if c == nil {
				c = new([4]uint64)
				counts[f[1]] = c
				order = append(order, f[1])
			}
			for i := range c {
				c[i] = sum([]uint64{c[i], n[i]})
			}
		}
	}
	for _, prefix := range order {
		c := counts[prefix]
		dst = fmt.Appendf(dst, "PREFIX %s get %d hit %d set %d del %d\r\n", prefix, c[0], c[1], c[2], c[3])
	}
	return append(dst, wire.EndLine...)
}

// AppendItems appends the ITEM lines of all replies, at most limit lines; 0: no limit.
func AppendItems(dst []byte, answers [][]byte, limit uint64) []byte {
	shown := uint64(0)
	for _, answer := range answers {
		for line := range bytes.Lines(answer) {
			if limit > 0 && shown == limit {
				break
			}
			if bytes.HasPrefix(line, []byte("ITEM ")) {
				dst = append(dst, line...)
				shown++
			}
		}
	}
	return append(dst, wire.EndLine...)
}
