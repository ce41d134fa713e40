package client

// Clients that have to say who they are before they are served.

import (
	"bytes"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/proxy/wire"
	"ringside/proxy/wire/frame"
)

// loginTime is how long a client may be connected without having said who it is.
const loginTime = 10 * time.Second

// loginLimits bound what a client that is not known can make Ringside hold.
var loginLimits = wire.Limits{Value: 1 << 10, Line: 2 << 10}

// identity is what is known of who a client is.
type identity struct {
	users    *table.Users // who may use its listener; nil: everybody
	unknown  bool         // it has to say who it is before it is served
	stepping bool         // it has begun to, and is to go on in the next frame
}

// RequireLogin serves s nothing until it has said which of these users it is.
func (s *Session) RequireLogin(users *table.Users) {
	s.users, s.unknown = users, true
	s.e.At(link.IdleTimer, s.e.Now+int64(loginTime))
}

var (
	answerLogin         = []byte("STORED\r\n")
	answerUnknown       = wire.AppendClientError(nil, "unauthenticated")
	answerWrongPassword = wire.AppendClientError(nil, "authentication failure")
	answerWrongLogin    = wire.AppendClientError(nil, "bad authentication token format")
)

// parseLogin serves a text client that is not known: it must set anything to
// "user password", as memcached -Y has it.
func (s *Session) parseLogin() {
	e := s.e
	for s.unknown && s.hasInput() {
		buf := e.Input.Bytes()
		n, err := loginLimits.Next(buf, &e.Req)
		if err == wire.ErrShort {
			s.Need = e.Req.Need
			return
		}
		e.Input.Start += n
		s.Swallow = e.Req.Swallow
		answer := answerUnknown
		if r := &e.Req; r.Op == wire.Set && r.Dialect == wire.Text && r.Flags&wire.TooLarge == 0 {
			answer = answerWrongLogin
			if words := bytes.Fields(r.Body.Of(buf)); len(words) >= 2 {
				answer = answerWrongPassword
				if s.login(words[0], words[1]) {
					answer = answerLogin
				}
			}
		}
		s.Out.Append(&e.Buffers, answer)
		s.Whole = true
		if e.Req.Flags&wire.CloseAfter != 0 {
			s.Quit()
		}
	}
	s.parseLines()
}

// login reports whether s is one of the users of its listener.
func (s *Session) login(name, password []byte) bool {
	if !s.users.Know(name, password) {
		s.e.Count.LoginsFailed++
		s.e.Log.Warn("a client gave a wrong user or password", "client", s.Peer())
		return false
	}
	s.unknown = false
	return true
}

const plain = "PLAIN" // the mechanism: RFC 4616

// loginFrame answers a frame of a binary client that is about who it is, or that
// comes before that is known, as memcached -S does.
func (s *Session) loginFrame(buf []byte) {
	e, f := s.e, &s.e.Frame
	status, text := frame.AuthFailed, ""
	mechanism, message := string(f.Key.Of(buf)), f.Value.Of(buf)
	stepping := s.stepping
	s.stepping = false
	switch {
	case s.users == nil:
		status = frame.NoCommand
	case f.Op != wire.Auth:
		s.Swallow = 0
		s.Quit()
	case f.Opcode == frame.Mechanisms:
		status, text = frame.Success, plain
	case f.Oversized(), mechanism != plain, f.Opcode == frame.Step && !stepping:
	case len(message) == 0 && f.Opcode != frame.Step:
		status, s.stepping = frame.Continue, true
	default:
		// On behalf of whom, user, password. Nobody may act for another.
		if parts := bytes.Split(message, []byte{0}); len(parts) == 3 && (len(parts[0]) == 0 || bytes.Equal(parts[0], parts[1])) && s.login(parts[1], parts[2]) {
			status, text = frame.Success, "Authenticated"
		}
	}
	e.framed = f.Head.AppendStatus(e.framed[:0], status, text)
	s.Out.Append(&e.Buffers, e.framed)
	s.Whole = true
}
