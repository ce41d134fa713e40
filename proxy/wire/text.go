package wire

// This file parses the text commands, such as set k 0 0 5 noreply.

// read parses the keys of a get, gets, gat or gats. They begin at the offset `at`; in a
// gat or gats, that is after the exptime.
func (p *parser) read(op Op, at uint32) (int, error) {
	r := p.r
	first := nextToken(p.buf, at, p.end)
	limit := p.limits.MaxKey()
	for t := first; t.Len() > 0; t = nextToken(p.buf, t.End, p.end) {
		if t.Len() > limit {
			return p.bad(answerFormat)
		}
		r.Several = append(r.Several, t)
	}
	r.NumKeys = len(r.Several)
	if r.NumKeys == 0 {
		return p.bad(answerError)
	}
	r.Op, r.Key, r.Keys = op, first, Span{first.Start, p.end}
	if p.size > shortLine && !p.singleSpaced() {
		r.Flags |= Rewrite
	}
	return p.size, nil
}

// singleSpaced reports whether only keys make a read long. A version of memcached may not accept a long line that
// consists of spaces, or of the zeros of an exptime.
func (p *parser) singleSpaced() bool {
	r, end := p.r, p.word.End
	if at := r.Exptime; at.Len() > 0 {
		if at.Start != end+1 || at.Len() > maxNumber {
			return false
		}
		end = at.End
	}
	for _, key := range r.Several {
		if key.Start != end+1 {
			return false
		}
		end = key.End
	}
	return end == p.end
}

func (p *parser) readTouch(op Op, at uint32) (int, error) {
	exptime := nextToken(p.buf, at, p.end)
	if exptime.Len() == 0 {
		return p.bad(answerError)
	}
	if !signed(exptime.Of(p.buf)) {
		return p.bad(answerExptime)
	}
	if nextToken(p.buf, exptime.End, p.end).Len() == 0 {
		return p.bad(EndLine) // memcached replies END without an error if no key follows the exptime
	}
	p.r.Exptime = exptime
	p.r.Flags |= Effects
	return p.read(op, exptime.End)
}

// args splits the line into words. min and max are the allowed numbers of words,
// including the command. Like memcached, args first checks whether the last word is
// noreply, so noreply also hides the errors that follow. If the last word is another one,
// args does not check it.
func (p *parser) args(tok *[maxArgs]Span, min, max int) (n int, ok bool) {
	n = split(p.buf, p.word, p.end, tok)
	if n < min || n > max {
		return n, false
	}
	if last := tok[n-1]; last.Len() == 7 && string(last.Of(p.buf)) == "noreply" {
		p.r.Flags |= Quiet
	}
	return n, true
}

// unlessQuiet returns the reply answer, or nil if the client sent noreply.
func (p *parser) unlessQuiet(answer []byte) []byte {
	if p.r.Flags&Quiet != 0 {
		return nil
	}
	return answer
}

// dropBehind sets Request.Drop to everything after the span last, the last argument that
// is used. Bytes in Drop are not forwarded.
func (p *parser) dropBehind(last Span) {
	if last.End < p.tail {
		p.r.Drop = Span{last.End, p.tail}
	}
}

// oneKey sets the op and the single key of the request. It reports whether the key is
// short enough.
func (p *parser) oneKey(op Op, key Span) bool {
	p.r.Op, p.r.Key, p.r.NumKeys = op, key, 1
	return key.Len() <= p.limits.MaxKey()
}

// store parses the arguments of a storage command: <key> <flags> <exptime> <bytes>
// [<cas>] [noreply]. It ignores further words. If the command is refused after its length
// was read, its data block is discarded and never executed as commands.
func (p *parser) store(op Op) (int, error) {
	want := 5
	if op == Cas {
		want = 6
	}
	r := p.r
	var tok [maxArgs]Span
	n := split(p.buf, p.word, p.end, &tok)
	cut := n < 5 && p.pastNUL()
	if cut {
		n = split(p.buf, nextToken(p.buf, r.Line.Start, p.end), p.end, &tok)
	}
	if n < 5 {
		return p.bad(answerError)
	}
	last := tok[min(n, maxArgs)-1]
	if n > maxArgs {
		last = lastToken(p.buf, r.Line)
	}
	if string(last.Of(p.buf)) == "noreply" {
		r.Flags |= Quiet
	}
	size, ok := length(tok[4].Of(p.buf))
	if !ok {
		return p.bad(p.unlessQuiet(answerFormat))
	}
	if cut || n < want || !p.oneKey(op, tok[1]) || !signed(tok[3].Of(p.buf)) || !unsigned(tok[2].Of(p.buf)) ||
		op == Cas && !unsigned(tok[5].Of(p.buf)) {
		return p.discard(size, p.unlessQuiet(answerFormat))
	}
	r.ClientFlags, r.Exptime = tok[2], tok[3]
	if op == Cas {
		r.Unique = tok[5]
	}
	if !plainNumber(tok[4].Of(p.buf)) {
		r.Flags |= Rewrite
	}
	p.dropBehind(tok[want-1])
	return p.body(size, p.unlessQuiet(answerChunk), p.unlessQuiet(answerTooLarge))
}

// keyAndNumber parses the arguments of incr and decr, <key> <delta> [noreply], and of
// touch, <key> <exptime> [noreply].
func (p *parser) keyAndNumber(op Op, number *Span, fits func([]byte) bool, wrong []byte) (int, error) {
	var tok [maxArgs]Span
	_, ok := p.args(&tok, 3, 4)
	if !ok {
		return p.bad(answerError)
	}
	if !p.oneKey(op, tok[1]) {
		return p.bad(p.unlessQuiet(answerFormat))
	}
	if !fits(tok[2].Of(p.buf)) {
		return p.bad(p.unlessQuiet(wrong))
	}
	*number = tok[2]
	p.dropBehind(tok[2])
	return p.size, nil
}

// delete parses the arguments of delete: <key> [0] [noreply]. The 0 is an obsolete delay.
// memcached accepts no other value.
func (p *parser) delete() (int, error) {
	var tok [maxArgs]Span
	n := split(p.buf, p.word, p.end, &tok)
	if n < 2 || n > 4 {
		return p.bad(answerError)
	}
	if n > 2 {
		if string(tok[n-1].Of(p.buf)) == "noreply" {
			p.r.Flags |= Quiet
		}
		zero, quiet := string(tok[2].Of(p.buf)) == "0", p.r.Flags&Quiet != 0
		if n == 3 && !zero && !quiet || n == 4 && !(zero && quiet) {
			return p.bad(p.unlessQuiet(answerDelete))
		}
	}
	if !p.oneKey(Delete, tok[1]) {
		return p.bad(p.unlessQuiet(answerFormat))
	}
	last := tok[1]
	switch plain := n > 2 && string(tok[2].Of(p.buf)) == "0"; {
	case !isNoreply(tok[1].Of(p.buf)):
	case plain:
		last = tok[2]
	default:
		p.r.Flags |= Rewrite
	}
	p.dropBehind(last)
	return p.size, nil
}

func (p *parser) flushAll() (int, error) {
	var tok [maxArgs]Span
	n, ok := p.args(&tok, 1, 3)
	if !ok {
		return p.bad(answerError)
	}
	p.r.Op = FlushAll
	if n == 1 || n == 2 && p.r.Flags&Quiet != 0 {
		p.dropBehind(tok[0])
		return p.size, nil
	}
	if !signed(tok[1].Of(p.buf)) {
		return p.bad(p.unlessQuiet(answerExptime))
	}
	p.r.Args, p.r.Exptime = tok[1], tok[1]
	p.dropBehind(tok[1])
	return p.size, nil
}

func (p *parser) verbosity() (int, error) {
	var tok [maxArgs]Span
	_, ok := p.args(&tok, 2, 3)
	if !ok {
		return p.bad(answerError)
	}
	if !unsigned(tok[1].Of(p.buf)) {
		return p.bad(p.unlessQuiet(answerFormat))
	}
	p.r.Op, p.r.Args = Verbosity, tok[1]
	p.dropBehind(tok[1])
	return p.size, nil
}
