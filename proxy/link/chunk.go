package link

// This file defines pooled byte buffers, and queues of these buffers for sockets.

// A Chunk is a buffer with two cursors:
//
//	Data:  0 ......... Start ............ End ......... len(Data)
//	         consumed         bytes held        free
//
// It has one owner at any time: a link's input, a queue, or Buffers.
type Chunk struct {
	Data       []byte
	Start, End int
	Next       *Chunk // the next chunk in a queue, or in the free list of Buffers
}

// Bytes returns the bytes in use.
func (c *Chunk) Bytes() []byte { return c.Data[c.Start:c.End] }

// Len returns the number of bytes in use.
func (c *Chunk) Len() int { return c.End - c.Start }

// free returns how many more bytes fit into c.
func (c *Chunk) free() int { return len(c.Data) - c.End }

// classes are the sizes of chunks that are reused. The class for values of 64 KiB is larger, so
// that such a value fits one chunk with its header and its END. The classes above double in size.
var classes = [...]int{1 << 10, 4 << 10, 16 << 10, ScratchSize, 136 << 10, 272 << 10, 544 << 10, 1088 << 10}

const (
	// ScratchSize is how many bytes one read returns at most, except in the middle of a large request or reply.
	ScratchSize = 68 << 10

	// ClientRead is how many bytes one read from a client returns at most.
	ClientRead = 4 * ScratchSize

	// BigSpan is the size in bytes from which passing on a chunk is cheaper than copying the bytes.
	BigSpan = 16 << 10

	// keepBytes limits the free chunks of one class, in bytes. It is enough for the replies of a
	// thousand clients, and little memory.
	keepBytes = 4 << 20
)

// Buffers recycles the chunks of one loop. It leaves chunks larger than the largest class to the
// garbage collector.
type Buffers struct {
	Free  [len(classes)]*Chunk // free chunks by class, linked by Next
	Count [len(classes)]int    // number of free chunks by class
	Held  int64                // bytes of free chunks, of chunks in use, and of everything else that counts against limits.memory
}

// Get returns an empty chunk of at least n bytes.
func (p *Buffers) Get(n int) *Chunk {
	for i, size := range classes {
		if n > size {
			continue
		}
		if c := p.Free[i]; c != nil {
			p.Free[i], c.Next = c.Next, nil
			p.Count[i]--
			return c
		}
		p.Held += int64(size)
		return &Chunk{Data: make([]byte, size)}
	}
	p.Held += int64(n)
	return &Chunk{Data: make([]byte, n)}
}

// SizeOf returns the size of the chunk that Buffers.Get returns for n bytes.
func SizeOf(n int) int {
	for _, size := range classes {
		if n <= size {
			return size
		}
	}
	return n
}

// Put returns a chunk to the pool. The caller must not use it again.
func (p *Buffers) Put(c *Chunk) {
	for i, size := range classes {
		if len(c.Data) == size && (p.Count[i]+1)*size <= keepBytes {
			c.Start, c.End, c.Next = 0, 0, p.Free[i]
			p.Free[i] = c
			p.Count[i]++
			return
		}
	}
	p.Held -= int64(len(c.Data))
}

// Kept returns the bytes of the free chunks.
func (p *Buffers) Kept() (n int64) {
	for i, size := range classes {
		n += int64(p.Count[i] * size)
	}
	return n
}

// trim releases the free chunks.
func (p *Buffers) trim() {
	for i, size := range classes {
		p.Held -= int64(p.Count[i] * size)
		p.Free[i], p.Count[i] = nil, 0
	}
}

// Queue is a sequence of bytes, stored in chunks. The zero Queue is empty.
type Queue struct {
	Head, Tail *Chunk // chunks, linked by Next
	Size       int    // number of bytes in the queue
}

// Append copies b to the end of q.
func (q *Queue) Append(p *Buffers, b []byte) {
	if t := q.Tail; t != nil {
		if room := t.Data[t.End:]; len(b) <= len(room) { // b nearly always fits into the last chunk
			q.Size += len(b)
			t.End += len(b)
			copy(room, b) // copied after everything else, so that the compiler keeps no variable alive over the call
			return
		}
	}
	q.appendOver(p, b)
}

// appendOver appends b to q if b does not fit into the last chunk.
func (q *Queue) appendOver(p *Buffers, b []byte) {
	q.Size += len(b)
	for len(b) > 0 {
		if q.Tail == nil || q.Tail.free() == 0 {
			q.link(p.Get(q.nextSize(len(b))))
		}
		n := copy(q.Tail.Data[q.Tail.End:], b)
		q.Tail.End += n
		b = b[n:]
	}
}

// nextSize returns the size of the next chunk. It is small while the queue is short, so that a
// thousand small replies use little memory. It is large after the queue has grown.
func (q *Queue) nextSize(n int) int {
	switch {
	case q.Size <= 1<<10:
		return max(n, 1<<10)
	case q.Size <= 16<<10:
		return max(n, 4<<10)
	default:
		return max(n, 16<<10)
	}
}

// Push appends a whole chunk. The caller must not use it again.
func (q *Queue) Push(p *Buffers, c *Chunk) {
	if c.Len() < BigSpan/4 { // copying a small chunk is cheaper than passing it on
		q.Append(p, c.Bytes())
		p.Put(c)
		return
	}
	q.Size += c.Len()
	q.link(c)
}

// link appends a chunk.
func (q *Queue) link(c *Chunk) {
	c.Next = nil
	if q.Tail == nil {
		q.Head = c
	} else {
		q.Tail.Next = c
	}
	q.Tail = c
}

// MoveTo moves all bytes of q to the end of the queue `to`.
func (q *Queue) MoveTo(p *Buffers, to *Queue) {
	if q.Head != nil {
		q.moveAll(p, to)
	}
}

func (q *Queue) moveAll(p *Buffers, to *Queue) {
	for c := q.Head; c != nil; {
		next := c.Next
		to.Push(p, c)
		c = next
	}
	*q = Queue{}
}

// Consume removes the first n bytes of q.
func (q *Queue) Consume(p *Buffers, n int) {
	q.Size -= n
	for n > 0 {
		c := q.Head
		if l := c.Len(); n < l {
			c.Start += n
			return
		} else {
			n -= l
		}
		q.pop(p)
	}
	if q.Size == 0 && q.Head != nil { // the last chunk is empty and is not needed
		q.pop(p)
	}
}

// pop returns the first chunk to the pool.
func (q *Queue) pop(p *Buffers) {
	c := q.Head
	q.Head = c.Next
	if q.Head == nil {
		q.Tail = nil
	}
	p.Put(c)
}

// Transfer moves the first n bytes to the end of the queue `to`, by copying.
func (q *Queue) Transfer(p *Buffers, to *Queue, n int) {
	for n > 0 {
		b := q.Head.Bytes()
		b = b[:min(n, len(b))]
		to.Append(p, b)
		n -= len(b)
		q.Consume(p, len(b))
	}
}

// Last appends the last n bytes of q to dst.
func (q *Queue) Last(dst []byte, n int) []byte {
	if t := q.Tail; n <= t.Len() { // nearly always one chunk contains all n bytes
		return append(dst, t.Data[t.End-n:t.End]...)
	}
	skip := q.Size - n
	for c := q.Head; c != nil; c = c.Next {
		dst = append(dst, c.Bytes()[min(skip, c.Len()):]...)
		skip -= min(skip, c.Len())
	}
	return dst
}

// Unappend removes the last n bytes. It does nothing and returns false unless the last chunk
// contains them and more.
func (q *Queue) Unappend(n int) bool {
	t := q.Tail
	if t == nil || t.Len() <= n {
		return false
	}
	t.End -= n
	q.Size -= n
	return true
}

// Drop empties q.
func (q *Queue) Drop(p *Buffers) {
	if q.Head != nil {
		q.dropAll(p)
	}
}

func (q *Queue) dropAll(p *Buffers) {
	for q.Head != nil {
		q.pop(p)
	}
	q.Size = 0
}

// Room returns the capacity of q's chunks.
func (q *Queue) Room() (n int) {
	for c := q.Head; c != nil; c = c.Next {
		n += len(c.Data)
	}
	return n
}

// Spans appends the bytes of q to iov, as at most max spans.
func (q *Queue) Spans(iov [][]byte, max int) [][]byte {
	for c := q.Head; c != nil && len(iov) < max; c = c.Next {
		if c.Len() > 0 {
			iov = append(iov, c.Bytes())
		}
	}
	return iov
}
