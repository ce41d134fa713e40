package proxy

// stats and version: one answer for many servers.

// stats answers the stats command in e.req, whose bytes are raw.
func (e *Engine) stats(s *Session, raw []byte) {
	e.local(s, endLine, Okay)
}
