package stats

// Counters of how often each configured limit was reached, for operators.

// Bounds counts how often each limit was reached since the process started.
type Bounds struct {
	Clients     uint64 // clients refused: limits.clients
	Descriptors uint64 // clients that could not be accepted: the process has no file descriptors left
	Output      uint64 // clients closed: limits.output_hard
	Unfinished  uint64 // clients closed: limits.unfinished
	Memory      uint64 // clients closed: limits.memory
	Values      uint64 // values refused: limits.memory
	TooLarge    uint64 // values refused: limits.value
	Servers     map[string]ServerBounds
}

// ServerBounds counts how often a limit of one server was reached.
type ServerBounds struct {
	Queue uint64 // requests refused: the pool's queue
	Shed  uint64 // requests refused: limits.memory
}

// Add adds the counters of one engine.
func (b *Bounds) Add(c *Counters) {
	b.Clients += c.Refused
	b.Descriptors += c.Unaccepted
	b.Output += c.OutputClosed
	b.Unfinished += c.UnfinishedClosed
	b.Memory += c.MemoryClosed
	b.Values += c.NoMemory
	b.TooLarge += c.TooLarge
}

// AddServer adds the counters that one engine has for a server.
func (b *Bounds) AddServer(name string, c *ServerCounters) {
	if c.QueueFull+c.Shed == 0 {
		return
	}
	if b.Servers == nil {
		b.Servers = map[string]ServerBounds{}
	}
	is := b.Servers[name]
	is.Queue += c.QueueFull
	is.Shed += c.Shed
	b.Servers[name] = is
}
