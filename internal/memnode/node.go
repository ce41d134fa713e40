// Package memnode is a small in-process memcached for the demo and for tests.
//
// It listens on real sockets and implements the text and meta protocols of
// memcached 1.6.18. Package wire parses its requests, and replies to malformed ones. All
// other replies are the same byte for byte: the same
// meta flags that depend on their order, the same padding after decr, the
// same cas numbers for the same commands. A test sends random commands to both and
// compares the replies.
//
// # What is like memcached
//
// Times are whole seconds since the start. An exptime up to 30 days is relative, a
// larger one is a Unix time, and a negative one is in the past. Expiry and
// flush_all are checked when a key is requested. Until then, an expired or flushed
// item counts in curr_items. As in 1.6.18, a second flush_all with a delay
// replaces the first one. It makes items visible again that the first one had
// hidden, unless they were requested in between.
//
// An item is too large if its size as memcached counts it (header, key, flags, cas
// and value) is above the item limit. A set or ms of such an item removes the old
// value.
//
// # What is different
//
// The binary protocol is not supported: a connection that starts with byte 0x80 is
// closed. The commands for memcached's own memory and threads (slabs, lru,
// lru_crawler, cache_memlimit, watch, extstore, stats conns, stats detail, stats
// cachedump) return ERROR. A get line is limited to 1 MiB. me always shows cls=1, because all
// items share one least-recently-used list. Malformed commands do not count in stats, and a command
// with several keys, one of which is too long, has no effect on the others.
//
// Three defects of 1.6.18 are not reproduced:
//
//   - A get with a key that is too long loses earlier replies of the same
//     pipeline.
//   - decr does not pad while a reply of the same pipeline, or a background
//     thread, still references the item.
//   - Arithmetic on a value of only space, or beyond 2^63, reads memory after the
//     item.
//
// # Memory
//
// Items are in a strict LRU list (hashicorp/golang-lru). The weight of an item
// includes the bytes that Go needs for it, so the heap stays near the memory limit
// even for tiny values.
//
// A strict LRU list never drops what was just stored. A cache with an admission
// filter (otter, ristretto) drops about half of the new keys at once when it is
// full, which a memcached never does. In addition to the items, each connection
// may use memory for one incoming value and for the replies of one pipeline: up to
// 64 KiB or one value.
package memnode

// This file has the listener and its connections.

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	defaultMemoryLimit = 64 << 20 // the default of memcached's option -m
	defaultMaxItem     = 1 << 20  // the default of memcached's option -I
	defaultVersion     = "1.6.18"
)

// Options are the limits of a Node. The zero value is a node with memcached's defaults.
type Options struct {
	MemoryLimit int              // greatest weight of all items together, in bytes; default 64 MiB
	MaxItem     int              // largest item in bytes; default 1 MiB, or half of MemoryLimit if that is less
	Version     string           // the version in replies to version and stats; default "1.6.18"
	Old         bool             // the node has no meta commands, as before 1.6
	Now         func() time.Time // clock of the node, safe for concurrent use; default time.Now. Tests replace it to make items expire
}

func (o Options) withDefaults() (Options, error) {
	o.MemoryLimit = cmp.Or(o.MemoryLimit, defaultMemoryLimit)
	o.MaxItem = cmp.Or(o.MaxItem, min(defaultMaxItem, o.MemoryLimit/2))
	o.Version = cmp.Or(o.Version, defaultVersion)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxItem > o.MemoryLimit/2 {
		return o, fmt.Errorf("memnode: MaxItem %d is more than half of MemoryLimit %d: lower the one or raise the other", o.MaxItem, o.MemoryLimit)
	}
	return o, nil
}

// A Node is one memcached that runs in this process. Its methods are safe for concurrent use.
type Node struct {
	options  Options
	store    *store
	listener net.Listener
	running  sync.WaitGroup // counts the accept loop and one goroutine for each connection
	closed   chan struct{}

	mu    sync.Mutex
	conns map[*conn]net.Conn
	total int // number of connections since the start
}

// Start listens on a free port of 127.0.0.1 and serves clients until Close.
func Start(options Options) (*Node, error) {
	n, err := newNode(options)
	if err != nil {
		return nil, err
	}
	n.listener, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("memnode: cannot listen: %w", err)
	}
	n.running.Go(n.accept)
	return n, nil
}

// newNode returns a node without a listener.
func newNode(options Options) (*Node, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Node{
		options: options,
		store:   newStore(options),
		closed:  make(chan struct{}),
		conns:   make(map[*conn]net.Conn),
	}, nil
}

// Addr returns the address of the listener.
func (n *Node) Addr() net.Addr { return n.listener.Addr() }

// Close stops listening, closes all connections, and returns when all goroutines
// of the node have ended. The stored items are lost. A second Close does nothing.
func (n *Node) Close() error {
	n.mu.Lock()
	select {
	case <-n.closed:
		n.mu.Unlock()
		return nil
	default:
	}
	close(n.closed)
	err := n.listener.Close()
	for _, socket := range n.conns {
		socket.Close()
	}
	n.mu.Unlock()
	n.running.Wait()
	return err
}

func (n *Node) accept() {
	for {
		socket, err := n.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // probably there are too many open files; the next accept may succeed
			select {
			case <-n.closed:
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		n.serve(socket)
	}
}

// serve starts a goroutine for a new connection.
func (n *Node) serve(socket net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.closed:
		socket.Close()
		return
	default:
	}
	n.total++
	c := newConn(n, socket)
	n.conns[c] = socket
	n.running.Go(func() {
		c.run()
		socket.Close()
		n.mu.Lock()
		delete(n.conns, c)
		n.mu.Unlock()
	})
}
