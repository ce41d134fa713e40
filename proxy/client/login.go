package client

// Clients that have to say who they are before they are served.

import (
	"bytes"
	"log/slog"
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

const (
	loginDelay = time.Second // before a wrong user or password is answered
	loginsMost = 3           // wrong ones after which a client is closed
)

// identity is what is known of who a client is.
type identity struct {
	users    *table.Users // who may use its listener; nil: everybody
	unknown  bool         // it has to say who it is before it is served
	stepping bool         // it has begun to, and is to go on in the next frame
	user     table.UserID // who it is, once it has said so
	loginBy  int64        // when it is closed if it has not said who it is; on the loop's clock

	wrong    int    // users or passwords that were wrong, in a row
	answerAt int64  // when the client hears of the last of these; 0: it has
	answer   []byte // what it hears then
}

// RequireLogin serves s nothing until it has said which of these users it is.
func (s *Session) RequireLogin(users *table.Users) {
	s.users, s.unknown = users, true
	s.loginBy = s.e.Now + int64(loginTime)
	s.e.At(link.IdleTimer, s.loginBy)
}

// SetUsers says who may use the listener of s from now on; nil: everybody. A client that is
// none of them is closed.
func (s *Session) SetUsers(users *table.Users) {
	if s.users == users {
		return
	}
	before := s.users
	if s.users = users; users != nil && !s.unknown && (before == nil || !users.Has(s.user)) {
		s.Quit()
	}
	s.unknown = s.unknown && users != nil
}

// delayAnswer lets the answer to a wrong user or password wait, and with it all that the
// client sends meanwhile.
func (s *Session) delayAnswer(answer []byte) {
	s.answer, s.answerAt = append(s.answer[:0], answer...), s.e.Now+int64(loginDelay)
	s.e.At(link.IdleTimer, s.answerAt)
	s.stall()
}

// endDelay answers a wrong user or password, and closes the client that had too many.
func (s *Session) endDelay() {
	s.answerAt = 0
	s.Out.Append(&s.e.Buffers, s.answer)
	s.Whole, s.ready = true, true
	s.e.Mark(&s.Link)
	if s.wrong >= loginsMost {
		s.e.Count.LoginsClosed++
		s.Quit()
		return
	}
	s.unstall()
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
				} else {
					s.delayAnswer(answer)
					return
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

// login reports whether s is one of the users of its listener. If not it is nobody from now
// on, whoever it was before.
func (s *Session) login(name, password []byte) bool {
	id, known := s.users.Know(name, password)
	if !known {
		s.wrong++
		s.e.Count.LoginsFailed++
		s.e.LogLimited(slog.LevelWarn, "", "a client gave a wrong user or password", "client", s.Peer())
		s.revoke()
		return false
	}
	s.user, s.unknown, s.wrong = id, false, 0
	return true
}

// revoke makes a client unknown that has tried in vain to say who it is.
func (s *Session) revoke() {
	if !s.unknown {
		s.RequireLogin(s.users)
	}
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
		parts := bytes.Split(message, []byte{0})
		switch {
		case len(parts) != 3 || len(parts[0]) > 0 && !bytes.Equal(parts[0], parts[1]):
		case s.login(parts[1], parts[2]):
			status, text = frame.Success, "Authenticated"
		default:
			s.delayAnswer(f.Head.AppendStatus(e.framed[:0], status, text))
			return
		}
	}
	if status == frame.AuthFailed {
		s.revoke()
	}
	e.framed = f.Head.AppendStatus(e.framed[:0], status, text)
	s.Out.Append(&e.Buffers, e.framed)
	s.Whole = true
}
