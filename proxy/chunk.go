package proxy

// Pooled byte buffers, and the queues of them that wait for a socket.

// A chunk is a buffer with two cursors:
//
//	b:  0 ......... r ............ w ......... len(b)
//	      consumed     bytes held     free
//
// It has one owner at any time: a link's input, a queue, or the pool.
type chunk struct {
	b    []byte
	r, w int
	next *chunk // in a queue, or in the pool's free list
}

func (c *chunk) bytes() []byte { return c.b[c.r:c.w] }
func (c *chunk) len() int      { return c.w - c.r }
func (c *chunk) free() int     { return len(c.b) - c.w }

// The sizes the pool keeps. 64 KiB has room beside it so that a value of that
// size, its header and its END fit one chunk; larger classes double.
var classes = [...]int{1 << 10, 4 << 10, 16 << 10, scratchSize, 136 << 10, 272 << 10, 544 << 10, 1088 << 10}

const (
	// scratchSize is what one read from a socket can bring.
	scratchSize = 68 << 10

	// bigSpan is where handing a chunk over beats copying out of it.
	bigSpan = 16 << 10

	// keepBytes bounds the free chunks of one class: enough for a thousand
	// clients' answers, little enough to forget.
	keepBytes = 4 << 20
)

// pool recycles chunks for one engine. Larger ones than its largest class are
// left to the garbage collector.
type pool struct {
	free  [len(classes)]*chunk
	count [len(classes)]int
	held  int64 // bytes of all of these and of those that are out, and what else counts against Limits.Memory
}

// get returns an empty chunk of at least n bytes.
func (p *pool) get(n int) *chunk {
	for i, size := range classes {
		if n > size {
			continue
		}
		if c := p.free[i]; c != nil {
			p.free[i], c.next = c.next, nil
			p.count[i]--
			return c
		}
		p.held += int64(size)
		return &chunk{b: make([]byte, size)}
	}
	p.held += int64(n)
	return &chunk{b: make([]byte, n)}
}

// put takes a chunk back. The caller must not touch it again.
func (p *pool) put(c *chunk) {
	for i, size := range classes {
		if len(c.b) == size && (p.count[i]+1)*size <= keepBytes {
			c.r, c.w, c.next = 0, 0, p.free[i]
			p.free[i] = c
			p.count[i]++
			return
		}
	}
	p.held -= int64(len(c.b))
}

// kept is how many bytes the free chunks have.
func (p *pool) kept() (n int64) {
	for i, size := range classes {
		n += int64(p.count[i] * size)
	}
	return n
}

// trim gives up the free chunks.
func (p *pool) trim() {
	for i, size := range classes {
		p.held -= int64(p.count[i] * size)
		p.free[i], p.count[i] = nil, 0
	}
}

// queue holds bytes in order, in chunks. The zero queue is empty.
type queue struct {
	head, tail *chunk
	size       int
}

// append copies b to the end.
func (q *queue) append(p *pool, b []byte) {
	if t := q.tail; t != nil && len(b) <= len(t.b)-t.w { // so it is nearly always
		q.size += len(b)
		t.w += copy(t.b[t.w:], b)
		return
	}
	q.appendOver(p, b)
}

// appendOver is append over several chunks.
func (q *queue) appendOver(p *pool, b []byte) {
	q.size += len(b)
	for len(b) > 0 {
		if q.tail == nil || q.tail.free() == 0 {
			q.link(p.get(q.nextSize(len(b))))
		}
		n := copy(q.tail.b[q.tail.w:], b)
		q.tail.w += n
		b = b[n:]
	}
}

// appendString is append for text that is never written to.
func (q *queue) appendString(p *pool, s string) {
	q.size += len(s)
	for len(s) > 0 {
		if q.tail == nil || q.tail.free() == 0 {
			q.link(p.get(q.nextSize(len(s))))
		}
		n := copy(q.tail.b[q.tail.w:], s)
		q.tail.w += n
		s = s[n:]
	}
}

// nextSize sizes the next chunk: small while there is little, so that a
// thousand small answers stay small; large once a queue has shown that it
// grows.
func (q *queue) nextSize(n int) int {
	switch {
	case q.size <= 1<<10:
		return max(n, 1<<10)
	case q.size <= 16<<10:
		return max(n, 4<<10)
	default:
		return max(n, 16<<10)
	}
}

// push hands over a whole chunk.
func (q *queue) push(p *pool, c *chunk) {
	if c.len() < bigSpan/4 { // a small one is cheaper copied than carried
		q.append(p, c.bytes())
		p.put(c)
		return
	}
	q.size += c.len()
	q.link(c)
}

func (q *queue) link(c *chunk) {
	c.next = nil
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
}

// moveTo puts all bytes of q behind those of to, and empties q.
func (q *queue) moveTo(p *pool, to *queue) {
	for c := q.head; c != nil; {
		next := c.next
		to.push(p, c)
		c = next
	}
	*q = queue{}
}

// consume drops the first n bytes.
func (q *queue) consume(p *pool, n int) {
	q.size -= n
	for n > 0 {
		c := q.head
		if l := c.len(); n < l {
			c.r += n
			return
		} else {
			n -= l
		}
		q.pop(p)
	}
	if q.size == 0 && q.head != nil { // an empty tail chunk
		q.pop(p)
	}
}

func (q *queue) pop(p *pool) {
	c := q.head
	q.head = c.next
	if q.head == nil {
		q.tail = nil
	}
	p.put(c)
}

// transfer copies the first n bytes to the end of to, and drops them here.
func (q *queue) transfer(p *pool, to *queue, n int) {
	for n > 0 {
		b := q.head.bytes()
		b = b[:min(n, len(b))]
		to.append(p, b)
		n -= len(b)
		q.consume(p, len(b))
	}
}

// last appends the last n bytes to dst.
func (q *queue) last(dst []byte, n int) []byte {
	if t := q.tail; n <= t.len() { // so it is nearly always
		return append(dst, t.b[t.w-n:t.w]...)
	}
	skip := q.size - n
	for c := q.head; c != nil; c = c.next {
		dst = append(dst, c.bytes()[min(skip, c.len()):]...)
		skip -= min(skip, c.len())
	}
	return dst
}

// drop empties q.
func (q *queue) drop(p *pool) {
	if q.head != nil {
		q.dropAll(p)
	}
}

func (q *queue) dropAll(p *pool) {
	for q.head != nil {
		q.pop(p)
	}
	q.size = 0
}

// room is the capacity of q's chunks.
func (q *queue) room() (n int) {
	for c := q.head; c != nil; c = c.next {
		n += len(c.b)
	}
	return n
}

// spans appends the held bytes to iov, at most max spans of them.
func (q *queue) spans(iov [][]byte, max int) [][]byte {
	for c := q.head; c != nil && len(iov) < max; c = c.next {
		if c.len() > 0 {
			iov = append(iov, c.bytes())
		}
	}
	return iov
}
