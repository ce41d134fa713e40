package wire

// Flag k with a key in base64: it is removed from requests and added to replies.

import "testing"

func TestCutKey(t *testing.T) {
	for _, c := range []struct{ request, cut, reply, answer string }{
		{"mg YSAx b k\r\n", "mg YSAx b\r\n", "HD\r\n", "HD kYSAx b\r\n"},
		{"mg YSAx k b\r\n", "mg YSAx b\r\n", "EN\r\n", "EN kYSAx b\r\n"},
		{"mg YSAx  v  k  b  t O1\r\n", "mg YSAx  v b t O1\r\n", "VA 1 t-1 O1 W\r\nx\r\n", "VA 1 kYSAx b t-1 O1 W\r\nx\r\n"},
		{"mg YSAx b f s k c v\r\n", "mg YSAx b f s c v\r\n", "VA 1 f0 s1 c7 X Z\r\nx\r\n", "VA 1 f0 s1 kYSAx b c7 X Z\r\nx\r\n"},
		{"mg YSAx O1 b kjunk\r\n", "mg YSAx O1 b\r\n", "HD O1 W\r\n", "HD O1 kYSAx b W\r\n"},
		{"mg Y-SAx b k\r\n", "mg Y-SAx b\r\n", "HD\r\n", "HD kYSAx b\r\n"}, // memcached skips the -
		{"ms YSAx 2 b k c\r\nab\r\n", "ms YSAx 2 b c\r\nab\r\n", "HD c7\r\n", "HD kYSAx b c7\r\n"},
		{"ms YSAx 2 k b\r\nab\r\n", "ms YSAx 2 b\r\nab\r\n", "NS\r\n", "NS kYSAx b\r\n"},
		{"md YSAx O1 k b\r\n", "md YSAx O1 b\r\n", "NF O1\r\n", "NF O1 kYSAx b\r\n"},
		{"ma YSAx b k t v\r\n", "ma YSAx b t v\r\n", "VA 1 t-1\r\n7\r\n", "VA 1 kYSAx b t-1\r\n7\r\n"},
		{"ma YSAx b k\r\n", "ma YSAx b\r\n", "CLIENT_ERROR no number\r\n", "CLIENT_ERROR no number\r\n"},
		{"mg a k v\r\n", "mg a k v\r\n", "VA 1 ka\r\nx\r\n", "VA 1 ka\r\nx\r\n"},
		{"mg YTEx b k v\r\n", "mg YTEx b k v\r\n", "VA 1 ka11\r\nx\r\n", "VA 1 ka11\r\nx\r\n"}, // the decoded key is a plain word
		{"mg YSAx b v\r\n", "mg YSAx b v\r\n", "VA 1\r\nx\r\n", "VA 1\r\nx\r\n"},
		{"get a\r\n", "get a\r\n", "END\r\n", "END\r\n"},
	} {
		var l Limits
		var r Request
		var rep Reply
		l.Next([]byte(c.request), &r)
		echo := r.KeyEcho([]byte(c.request))
		cut := l.CutKey([]byte(c.request), &r)
		if string(cut) != c.cut {
			t.Errorf("%q: sent as %q, want %q", c.request, cut, c.cut)
		}
		var again Request
		if l.Next(cut, &again); again.Key != r.Key || again.MetaFlags != r.MetaFlags || again.Flags != r.Flags {
			t.Errorf("%q: what is sent is not parsed", c.request)
		}
		answer := []byte(c.reply)
		if _, err := NextReply(r.Op, r.Dialect, answer, &rep); err != nil {
			t.Fatalf("%q: %q: %v", c.request, c.reply, err)
		}
		if at, ok := echo.At(answer, &rep); ok {
			answer = append(append(append([]byte{}, answer[:at]...), echo.Text...), answer[at:]...)
		}
		if string(answer) != c.answer {
			t.Errorf("%q: %q becomes %q, want %q", c.request, c.reply, answer, c.answer)
		}
	}
}

// TestNamesTwice: a reply with two keys or two opaques is not a valid reply.
func TestNamesTwice(t *testing.T) {
	for _, reply := range []string{"HD ka kb\r\n", "HD O1 ka O2\r\n", "VA 1 k k\r\nx\r\n", "EN O O\r\n"} {
		var r Reply
		if _, err := NextReply(Get, Meta, []byte(reply), &r); err != errReply {
			t.Errorf("%q: %v", reply, err)
		}
	}
}
