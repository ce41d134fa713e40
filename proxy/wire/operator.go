package wire

// This file decides which commands for the operator of a server are refused, and with
// which reply.

import (
	"bytes"
	"strconv"
)

// These are memcached 1.6.18's replies to commands for an operator with wrong arguments.
var (
	answerLimitSmall = []byte("MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n")
	answerLimitLarge = []byte("MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n")
	answerSleep      = clientError("sleep must be one second or less")
	answerPercent    = []byte("ERROR hot and warm pcts must not exceed 80\r\n")
	answerFactor     = []byte("ERROR hot/warm age factors must be greater than 0\r\n")
)

// memlimit parses the command cache_memlimit <megabytes> [noreply].
func (p *parser) memlimit() (int, error) {
	var tok [maxArgs]Span
	_, ok := p.args(&tok, 2, 3)
	if !ok {
		return p.bad(answerError)
	}
	arg := tok[1].Of(p.buf)
	n, _, _ := magnitude(arg)
	switch megabytes := uint32(n); {
	case !unsigned(arg):
		return p.bad(p.unlessQuiet(answerError))
	case megabytes < 8:
		return p.bad(p.unlessQuiet(answerLimitSmall))
	case megabytes > 1_000_000_000:
		return p.bad(p.unlessQuiet(answerLimitLarge))
	}
	p.r.Op, p.r.Args = Memlimit, tok[1]
	p.dropBehind(tok[1])
	return p.size, nil
}

// refusals are the replies to commands for an operator that this package refuses, by the
// command's name.
var refusals = func() map[string][]byte {
	m := map[string][]byte{}
	for _, name := range [...]string{"slabs", "lru", "lru_crawler", "extstore", "watch", "refresh_certs"} {
		m[name] = clientError("ask one server directly for " + name)
	}
	return m
}()

// operate returns the reply to a command for an operator. The command is malformed, or
// Ringside refuses it.
func (p *parser) operate() (answer []byte) {
	var o operation
	o.buf = p.buf
	o.n = split(p.buf, p.word, p.end, &o.tok)
	quiet := o.n > 1 // whether the last word noreply hides the reply to this command
	switch string(o.word(0)) {
	case "slabs":
		answer = o.slabs()
		quiet = o.n > 2 && string(o.word(1)) == "automove"
	case "lru":
		answer = o.lru()
	case "lru_crawler":
		answer = o.crawler()
		quiet = false
	case "extstore":
		answer = o.extstore()
	case "watch":
		answer = o.watch()
	}
	switch {
	case quiet && string(o.word(o.n-1)) == "noreply":
		return nil
	case answer == nil:
		return refusals[string(o.word(0))]
	}
	return answer
}

// operation is a command for an operator, split into its first maxArgs words. Its methods
// return memcached's reply to a malformed command, or nil if the command is well-formed.
type operation struct {
	buf []byte
	tok [maxArgs]Span
	n   int
}

func (o *operation) word(i int) []byte {
	if i < min(o.n, maxArgs) {
		return o.tok[i].Of(o.buf)
	}
	return nil
}

func (o *operation) number(i int) (uint32, bool) {
	n, _, _ := magnitude(o.word(i))
	return uint32(n), unsigned(o.word(i))
}

func (o *operation) real(i int) (float64, bool) {
	b := o.word(i)
	if len(b) == 0 || len(bytes.Trim(b, "+-.0123456789e")) > 0 { // reject other characters here, because ParseFloat allocates memory when it fails
		return 0, false
	}
	f, err := strconv.ParseFloat(string(b), 64)
	return f, err == nil
}

func (o *operation) slabs() []byte {
	switch sub := string(o.word(1)); {
	case sub == "reassign" && o.n == 4:
		if !signed(o.word(2)) || !signed(o.word(3)) {
			return answerFormat
		}
		return nil
	case sub == "automove" && string(o.word(2)) == "ratio":
		if _, ok := o.real(3); ok {
			return nil
		}
	case sub == "automove" && o.n > 2:
		switch level, ok := o.number(2); {
		case !ok:
			return answerFormat
		case level <= 2:
			return nil
		}
	}
	return answerError
}

func (o *operation) lru() []byte {
	switch sub, mode := string(o.word(1)), string(o.word(2)); {
	case sub == "tune" && o.n > 5:
		hot, ok1 := o.number(2)
		warm, ok2 := o.number(3)
		hotFactor, ok3 := o.real(4)
		factor, ok4 := o.real(5)
		switch {
		case !ok1 || !ok2 || !ok3 || !ok4:
		case hot+warm > 80:
			return answerPercent
		case hotFactor <= 0 || factor <= 0:
			return answerFactor
		default:
			return nil
		}
	case sub == "mode" && (mode == "flat" || mode == "segmented"):
		return nil
	case sub == "temp_ttl":
		if signed(o.word(2)) {
			return nil
		}
	}
	return answerError
}

func (o *operation) crawler() []byte {
	n, number := o.number(2)
	switch sub := string(o.word(1)); o.n {
	case 2:
		if sub == "enable" || sub == "disable" {
			return nil
		}
	case 3:
		switch {
		case sub == "crawl", sub == "metadump", sub == "mgdump":
			return nil
		case sub != "tocrawl" && sub != "sleep":
		case !number:
			return answerFormat
		case sub == "sleep" && n > 1_000_000:
			return answerSleep
		default:
			return nil
		}
	}
	return answerError
}

func (o *operation) extstore() []byte {
	_, ok := o.number(2)
	switch string(o.word(1)) {
	case "free_memchunks":
		_, limit := o.number(3)
		ok = ok && limit
	case "item_size", "item_age", "low_ttl", "recache_rate", "compact_under", "drop_under", "max_sleep", "drop_unread":
	case "max_frag":
		_, ok = o.real(2)
	default:
		ok = false
	}
	if ok {
		return nil
	}
	return answerError
}

func (o *operation) watch() []byte {
	for i := 1; i < o.n; i++ {
		switch string(o.word(i)) {
		case "rawcmds", "evictions", "fetchers", "mutations", "sysevents", "connevents", "proxyreqs", "proxyevents", "proxyuser", "deletions":
		default:
			return answerError
		}
	}
	return nil
}
