package client

// This file handles clients that must log in before their requests are handled.

import (
	"bytes"
	"log/slog"
	"time"

	"ringside/proxy/link"
	"ringside/proxy/table"
	"ringside/proxy/wire"
	"ringside/proxy/wire/binary"
)

// loginTime is how long a client may be connected without logging in.
const loginTime = 10 * time.Second

// loginLimits limits the memory that a client can use before it has logged in.
var loginLimits = wire.Limits{Value: 1 << 10, Line: 2 << 10}

const (
	loginDelay = time.Second // time between a login with a wrong user or password and the reply to it
	loginsMost = 3           // number of failed logins in a row after which a client is closed
)

// identity is the login state of a client.
type identity struct {
	users    *table.Users // the users of its listener; nil: no login is needed
	unknown  bool         // the client must log in before its requests are handled
	stepping bool         // the client has started a SASL login, which continues in the next frame
	user     table.UserID // the user that has logged in; valid after the login
	loginBy  int64        // when the client is closed if it has not logged in; on the loop's clock

	wrong    int    // failed logins in a row
	answerAt int64  // when the reply to the last failed login is sent; 0: no such reply is due
	answer   []byte // the reply that is sent at answerAt
}

// RequireLogin makes s reject all requests until the client has logged in as one of these
// users.
func (s *Session) RequireLogin(users *table.Users) {
	s.users, s.unknown = users, true
	s.loginBy = s.e.Now + int64(loginTime)
	s.e.At(link.IdleTimer, s.loginBy)
}

// SetUsers changes the users of the listener of s; nil: no login is needed. If a login is
// needed, a client that may send requests but has not logged in as one of these users is
// closed.
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

// User returns the user that has logged in, if the client has.
func (s *Session) User() (id table.UserID, ok bool) { return s.user, s.users != nil && !s.unknown }

// CertificateNames returns the names in the verified certificate of the client; nil: it has none.
func (s *Session) CertificateNames() []string {
	if c, ok := s.Sock.(interface{ CertificateNames() []string }); ok {
		return c.CertificateNames()
	}
	return nil
}

// delayAnswer delays the reply to a failed login. Everything that the client sends until then
// waits, too.
func (s *Session) delayAnswer(answer []byte) {
	s.answer, s.answerAt = append(s.answer[:0], answer...), s.e.Now+int64(loginDelay)
	s.e.At(link.IdleTimer, s.answerAt)
	s.stall()
}

// endDelay sends the reply to a failed login, and closes the client after too many of them.
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

// parseLogin handles the requests of a text client that has not logged in. To log in it must
// set any key to "user password", as with memcached -Y.
func (s *Session) parseLogin() {
	e := s.e
	for s.unknown && s.hasInput() {
		buf := e.Input.Bytes()
		zeroFlags(buf[:min(len(buf), loginLimits.Line)])
		n, err := loginLimits.Next(buf, &e.Req)
		if err == wire.ErrShort {
			s.Need = e.Req.Need
			return
		}
		e.Input.Start += n
		s.turn.keys--
		s.turn.bytes -= n
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
	if !s.unknown {
		s.parseLines()
	}
}

// zeroFlags replaces the flags and the exptime of a set at the start of buf by zeros. In a login, they can be any
// words, as with memcached. Ringside itself logs in with the words x and x.
func zeroFlags(buf []byte) {
	line, _, whole := bytes.Cut(buf, wire.CRLF[1:])
	if words := bytes.Fields(line); whole && len(words) >= 5 && string(words[0]) == "set" {
		for _, w := range words[2:4] {
			copy(w, bytes.Repeat([]byte("0"), len(w)))
		}
	}
}

// login reports whether the name and password are those of a user of the listener. If not, s is
// logged out.
func (s *Session) login(name, password []byte) bool {
	id, known := s.users.Know(name, password)
	if !known {
		s.wrong++
		s.e.Count.LoginsFailed++
		s.e.LogLimited(slog.LevelWarn, "", "client rejected: wrong user or password", "client", s.Peer())
		s.revoke()
		return false
	}
	s.user, s.unknown, s.wrong = id, false, 0
	s.Handler.LoggedIn(s)
	return true
}

// revoke logs s out after a failed login.
func (s *Session) revoke() {
	if !s.unknown {
		s.RequireLogin(s.users)
	}
}

const plain = "PLAIN" // the SASL mechanism: RFC 4616

// loginFrame handles a login frame of a binary client, or a frame that arrives before the
// login, as memcached -S does.
func (s *Session) loginFrame(buf []byte) {
	e, f := s.e, &s.e.Frame
	status, text := binary.AuthFailed, ""
	mechanism, message := string(f.Key.Of(buf)), f.Value.Of(buf)
	stepping := s.stepping
	s.stepping = false
	switch {
	case s.users == nil:
		status = binary.NoCommand
	case f.Op != wire.Auth:
		s.Swallow = 0
		s.Quit()
	case f.Opcode == binary.Mechanisms:
		status, text = binary.Success, plain
	case f.Oversized(), mechanism != plain, f.Opcode == binary.Step && !stepping:
	case len(message) == 0 && f.Opcode != binary.Step:
		status, s.stepping = binary.Continue, true
	default:
		// Authorization identity, user, password. A user may not act for another one.
		parts := bytes.Split(message, []byte{0})
		switch {
		case len(parts) != 3 || len(parts[0]) > 0 && !bytes.Equal(parts[0], parts[1]):
		case s.login(parts[1], parts[2]):
			status, text = binary.Success, "Authenticated"
		default:
			s.delayAnswer(f.Head.AppendStatus(e.framed[:0], status, text))
			return
		}
	}
	if status == binary.AuthFailed {
		s.revoke()
	}
	e.framed = f.Head.AppendStatus(e.framed[:0], status, text)
	s.Out.Append(&e.Buffers, e.framed)
	s.Whole = true
}
