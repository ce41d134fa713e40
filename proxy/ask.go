package proxy

// An ask whose whole answer somebody here wants: a task, or the keeper.

import "ringside/proxy/wire"

// asker gets the answers to its asks, each once.
type asker interface {
	// answered is told how ask id ended. The bytes are valid during the call.
	answered(e *Engine, id int, r *answer)
}

// answer is how an ask ended.
type answer struct {
	srv     *Server
	bytes   []byte // the whole answer; nil: there is none
	why     string // there is none
	outcome Outcome
	foreign bool // the server was not asked: its release doesn't know the command. bytes is an error line
	unsent  bool // the server has not got a byte of the request: it can't run later
}

// demand sends line, one whole request, behind what c has to send, and lets to
// have the answer under the number id.
func (e *Engine) demand(c *Conn, to asker, id int, t *Timeouts, line []byte) {
	e.gen.wire.Next(line, &e.plain)
	a := e.newAttempt(nil)
	a.op, a.dialect, a.flags = e.plain.Op, e.plain.Dialect, e.plain.Flags
	e.put(c, a, to, id, t, line)
	c.want(a, e.plain.Needs())
}

// put is demand for an attempt a that knows what line is.
func (e *Engine) put(c *Conn, a *Attempt, to asker, id int, t *Timeouts, line []byte) {
	rare := a.rarely()
	rare.to, rare.id = to, id
	c.begin(a, t)
	c.out.append(&e.pool, line)
	c.give(a, len(line))
}

// asked says whether somebody wants the whole answer to a.
func (a *Attempt) asked() bool { return a.rare != nil && a.rare.to != nil }

// tell hands the whole answer over.
func (c *Conn) tell(a *Attempt) {
	to := a.rare.to
	a.rare.to = nil
	to.answered(c.srv.e, a.rare.id, &answer{srv: c.srv, bytes: a.rare.answer})
}

// tellNone says that there is no answer.
func (c *Conn) tellNone(a *Attempt, why string, o Outcome) {
	to := a.rare.to
	a.rare.to = nil
	to.answered(c.srv.e, a.rare.id, &answer{srv: c.srv, why: why, outcome: o, unsent: a.expired || c.state == connUp && a.start >= c.taken})
}

// parsed reads the first reply of an answer.
func (r *answer) parsed(op wire.Op, d wire.Dialect, to *wire.Reply) bool {
	if r.bytes == nil {
		return false
	}
	_, err := wire.NextReply(op, d, r.bytes, to)
	return err == nil
}
