// Package memnode is a small memcached in this process, for the demo and for tests.
//
// It speaks the text and meta protocols of memcached 1.6.18 over real listeners
// and answers byte for byte as that version does: the same errors, the same
// order-dependent meta flags, the same padding after decr, the same cas numbers
// for the same commands. A test plays random commands to both and compares.
//
// # What is memcached's
//
// Times are whole seconds since the start. An exptime up to 30 days is relative,
// a larger one is a Unix time, a negative one has passed. Expiry and flush_all
// are checked when a key is asked for; until then a dead item counts in curr_items
// and, as in 1.6.18, a second flush_all with a delay that replaces a first one
// brings back what the first had hidden and nobody had asked for since. An item
// is too large when its size as memcached counts it (header, key, flags, cas and
// value) is above the item limit; the old value goes then, for set and ms.
//
// # What is not
//
// The binary protocol is not spoken: a connection that begins with byte 0x80 is
// closed. The commands that manage memcached's own memory and threads (slabs, lru,
// lru_crawler, cache_memlimit, watch, extstore, stats detail, stats cachedump)
// answer ERROR. A get line is limited to 1 MiB. me always shows cls=1, because all
// items share one least-recently-used list.
//
// Three accidents of 1.6.18 are left out: a get with a key that is too long loses answers
// before it in the same pipeline; decr does not pad when an answer in the same pipeline,
// or a background thread, still holds the item; arithmetic on a value of only space,
// or beyond 2^63, reads memory behind the item.
//
// # Memory
//
// Items live in a strict LRU list (hashicorp/golang-lru) and are weighed with the
// bytes that Go spends around them, so the heap stays near the memory limit even
// for tiny values. What has just been stored is therefore there when it is asked for;
// a cache with an admission filter (otter, ristretto) drops about half of new keys
// at once when it is full, which a memcached never does. Beside the items, each
// connection may hold one value that is arriving and the answers of one pipeline
// up to 64 KiB or one value.
package memnode

// node.go: the listener, its connections, and how they are paused and closed.

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	defaultMemoryLimit = 64 << 20 // memcached -m
	defaultMaxItem     = 1 << 20  // memcached -I
	minMaxItem         = 1024     // memcached's lower bound of -I
	defaultMaxConns    = 1024     // memcached -c
	defaultVersion     = "1.6.18"
)

// Options says where a Node listens and how much it holds.
// The zero value is a node on a free port of 127.0.0.1 with memcached's own defaults.
type Options struct {
	Network     string           // "tcp", "tcp4", "tcp6" or "unix"; default "tcp"
	Address     string           // as for net.Listen; default "127.0.0.1:0", a port the kernel chooses. A unix socket needs a path
	MemoryLimit int              // bytes that all items together may weigh; default 64 MiB
	MaxItem     int              // bytes that one item may have, at least 1024; default 1 MiB, or half of MemoryLimit if that is less
	MaxConns    int              // connections served at once; default 1024. Others get an error and are closed
	Version     string           // what version and stats answer; default "1.6.18"
	Now         func() time.Time // the clock, safe for concurrent use; default time.Now. Tests that must see an item expire move it
}

func (o Options) withDefaults() (Options, error) {
	if o.Network == "" {
		o.Network = "tcp"
	}
	switch {
	case o.Address != "":
	case o.Network == "unix":
		return o, errors.New("memnode: a unix socket needs a path: set Address")
	default:
		o.Address = "127.0.0.1:0"
	}
	if o.MemoryLimit == 0 {
		o.MemoryLimit = defaultMemoryLimit
	}
	if o.MaxItem == 0 {
		o.MaxItem = min(defaultMaxItem, o.MemoryLimit/2)
	}
	if o.MaxItem < minMaxItem {
		return o, fmt.Errorf("memnode: MaxItem is %d bytes: raise it to at least %d (and MemoryLimit to twice that)", o.MaxItem, minMaxItem)
	}
	if o.MaxItem > o.MemoryLimit/2 {
		return o, fmt.Errorf("memnode: MaxItem %d is more than half of MemoryLimit %d: lower the one or raise the other", o.MaxItem, o.MemoryLimit)
	}
	if o.MaxConns == 0 {
		o.MaxConns = defaultMaxConns
	}
	if o.MaxConns < 0 {
		return o, fmt.Errorf("memnode: MaxConns is %d: it must be positive", o.MaxConns)
	}
	if o.Version == "" {
		o.Version = defaultVersion
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// A Node is a running memcached. Its methods are safe for concurrent use.
type Node struct {
	options  Options
	store    *store
	listener net.Listener
	started  time.Time
	running  sync.WaitGroup // the accept loop and one goroutine for each connection
	closed   chan struct{}

	mu       sync.Mutex
	conns    map[*conn]net.Conn
	paused   chan struct{} // nil: running; else closed by Resume
	total    int           // connections accepted and served since the start; they are numbered by it
	rejected uint64        // connections that were one too many
}

// Start listens and serves until Close. The error says which option or address is wrong.
func Start(options Options) (*Node, error) {
	n, err := newNode(options)
	if err != nil {
		return nil, err
	}
	n.listener, err = net.Listen(n.options.Network, n.options.Address)
	if err != nil {
		return nil, fmt.Errorf("memnode: cannot listen: %w", err)
	}
	n.running.Go(n.accept)
	return n, nil
}

// newNode is a node without a listener.
func newNode(options Options) (*Node, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Node{
		options: options,
		store:   newStore(options),
		started: options.Now(),
		closed:  make(chan struct{}),
		conns:   make(map[*conn]net.Conn),
	}, nil
}

// Addr is where the node listens; with port 0 in the options, the port that was chosen.
func (n *Node) Addr() net.Addr { return n.listener.Addr() }

// Close stops listening, breaks all connections and returns when no goroutine
// of the node is left. What was stored is gone. A second Close does nothing.
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

// Pause makes the node look like a process that was stopped (SIGSTOP): the kernel
// still accepts connections and takes bytes, but nothing that arrives after
// Pause has returned is carried out or answered before Resume.
func (n *Node) Pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.paused == nil {
		n.paused = make(chan struct{})
	}
}

// Resume carries on where Pause stopped; what has arrived meanwhile is carried out and answered.
func (n *Node) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.paused != nil {
		close(n.paused)
		n.paused = nil
	}
}

// await returns when the node is not paused, or is closed.
func (n *Node) await() {
	n.mu.Lock()
	paused := n.paused
	n.mu.Unlock()
	if paused == nil {
		return
	}
	select {
	case <-paused:
	case <-n.closed:
	}
}

func (n *Node) accept() {
	for {
		socket, err := n.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, most likely: the next try may do better
			select {
			case <-n.closed:
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		if !n.serve(socket) {
			// One short write into an empty socket buffer does not block the loop.
			socket.Write([]byte("ERROR Too many open connections\r\n"))
			socket.Close()
		}
	}
}

// serve starts a connection, unless there are too many.
func (n *Node) serve(socket net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.closed:
		return false
	default:
	}
	if len(n.conns) >= n.options.MaxConns {
		n.rejected++
		return false
	}
	n.total++
	c := newConn(n, socket)
	c.id = n.total
	n.conns[c] = socket
	n.running.Go(func() {
		c.run()
		socket.Close()
		n.mu.Lock()
		delete(n.conns, c)
		n.mu.Unlock()
	})
	return true
}
