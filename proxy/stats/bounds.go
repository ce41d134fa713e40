package stats

// This file counts how often each configured limit was reached, for operators.

// Bounds counts how often each configured limit was reached since the process started.
type Bounds struct {
	Clients     uint64 // number of clients that were refused because of limits.clients
	Descriptors uint64 // number of clients that could not be accepted, because the process had no file descriptors left
	Output      uint64 // number of clients that were closed because of limits.output_hard
	Unfinished  uint64 // number of clients that were closed because of limits.unfinished
	Memory      uint64 // number of clients that were closed because of limits.memory
	Values      uint64 // number of values that were refused because of limits.memory
	TooLarge    uint64 // number of values that were refused because of limits.value
	Servers     map[string]ServerBounds
}

// ServerBounds counts how often each limit of one server was reached.
type ServerBounds struct {
	Queue uint64 // number of requests that were refused because the server's queue was full
	Shed  uint64 // number of requests that were refused because limits.memory was reached
}

// Add adds what one engine has counted in c.
func (b *Bounds) Add(c *Counters) {
	b.Clients += c.Refused
	b.Descriptors += c.Unaccepted
	b.Output += c.OutputClosed
	b.Unfinished += c.UnfinishedClosed
	b.Memory += c.MemoryClosed + c.UnreadClosed
	b.Values += c.NoMemory
	b.TooLarge += c.TooLarge
}

// AddServer adds what one engine has counted for the server with the given name.
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
