package watch

// This file has the patterns that select the keys to trace.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Pattern selects the keys to trace. It must match the whole key. * matches any bytes or none, ?
// matches one byte, [a-z] matches one byte of the set, and [^a-z] matches one byte that is not in
// the set. \ makes the next byte literal. The pattern []N selects one key in N: see Sample.
type Pattern string

// MostPatterns is the maximum number of patterns that are traced at the same time.
const MostPatterns = 8

// Sample returns the pattern that selects one key in n, by a hash of the key. All requests on a
// selected key are traced. The pattern begins with [], which no other valid pattern does.
func Sample(n int) Pattern { return Pattern("[]" + strconv.Itoa(n)) }

// MostSample is the largest n that Sample accepts.
const MostSample = 1_000_000

// sample returns the number N of a pattern []N, which selects one key in N. It returns 0 for any
// other pattern.
func (p Pattern) sample() uint64 {
	if len(p) < 3 || p[:2] != "[]" {
		return 0
	}
	n, err := strconv.ParseUint(string(p[2:]), 10, 32)
	if err != nil || n > MostSample {
		return 0
	}
	return n
}

// Lock is the prefix of the keys of locks. The rest of such a key is the key that the lock
// protects.
const Lock = "lock:"

// Patterns converts texts to patterns. It does not check whether they are valid.
func Patterns(texts []string) (list []Pattern) {
	for _, t := range texts {
		list = append(list, Pattern(t))
	}
	return list
}

// Check returns an error for the first pattern that is not valid, or nil if all are valid.
func Check(patterns []Pattern) error {
	if n := len(patterns); n == 0 || n > MostPatterns {
		return fmt.Errorf("%d patterns: say 1 to %d", n, MostPatterns)
	}
	for _, p := range patterns {
		if err := p.check(); err != nil {
			return fmt.Errorf("pattern %q: %w", string(p), err)
		}
	}
	return nil
}

func (p Pattern) check() error {
	if p.sample() > 0 {
		return nil
	}
	literal := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '*', '?':
		case '[':
			end := strings.IndexByte(string(p[i+1:]), ']')
			if end < 1 || end == 1 && p[i+1] == '^' {
				return errors.New("a [ without its ], or with nothing between them")
			}
			if empty := Pattern(strings.TrimPrefix(string(p[i+1:i+1+end]), "^")).emptyRange(); empty != "" {
				return fmt.Errorf("%s has nothing in it: a range begins with its least byte", empty)
			}
			i += end + 1
		case '\\':
			if i++; i == len(p) {
				return errors.New("nothing is behind the last \\")
			}
			literal++
		default:
			literal++
		}
	}
	if literal == 0 {
		return errors.New("it fits every key: say at least one byte of the key")
	}
	return nil
}

// Fits reports whether the pattern p matches the key. If the key is that of a lock, p may match the
// key that the lock protects instead.
func (p Pattern) Fits(key []byte) bool {
	if n := p.sample(); n > 0 {
		hash := uint64(14695981039346656037) // the hash function FNV-1a, with its initial value
		for i, b := range key {
			if i == len(Lock) && string(key[:i]) == Lock { // a pattern []N selects a lock together with the key that it protects
				hash = 14695981039346656037
			}
			hash = (hash ^ uint64(b)) * 1099511628211
		}
		return hash>>16%n == 0
	}
	if p.is(key) {
		return true
	}
	return len(key) > len(Lock) && string(key[:len(Lock)]) == Lock && p.is(key[len(Lock):])
}

// is reports whether p matches the whole key. After a mismatch it tries again from the last * only,
// because other matches of earlier *s would not help.
func (p Pattern) is(key []byte) bool {
	i, star, from := 0, -1, 0
	for at := 0; ; {
		if i < len(p) && p[i] == '*' {
			star, from = i, at
			i++
			continue
		}
		if at == len(key) {
			return i == len(p)
		}
		if n := p.one(i, key[at]); n > 0 {
			i += n
			at++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		i, at = star+1, from
	}
}

// one returns the length of the part of p, from index i on, that matches the byte b. It returns 0
// if that part does not match b.
func (p Pattern) one(i int, b byte) int {
	if i == len(p) {
		return 0
	}
	n, fits := 1, p[i] == b
	switch p[i] {
	case '?':
		fits = true
	case '\\':
		n, fits = 2, p[i+1] == b
	case '[':
		end := strings.IndexByte(string(p[i+1:]), ']')
		set := p[i+1 : i+1+end]
		n = end + 2
		not := set[0] == '^'
		if not {
			set = set[1:]
		}
		fits = set.has(b) != not
	}
	if !fits {
		return 0
	}
	return n
}

// emptyRange returns a range in the set p that ends before it begins, such as z-a. It returns "" if
// there is none.
func (p Pattern) emptyRange() Pattern {
	for i := 0; i+2 < len(p); i++ {
		if p[i+1] == '-' {
			if p[i] > p[i+2] {
				return p[i : i+3]
			}
			i += 2
		}
	}
	return ""
}

// has reports whether the byte b is in the set p.
func (p Pattern) has(b byte) bool {
	for i := 0; i < len(p); i++ {
		if i+2 < len(p) && p[i+1] == '-' {
			if p[i] <= b && b <= p[i+2] {
				return true
			}
			i += 2
		} else if p[i] == b {
			return true
		}
	}
	return false
}
