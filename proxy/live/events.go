package live

// This file keeps the most recent log records as events for the dashboard.

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ringside/proxy/event"
)

// mostEvents is the number of log records that are kept as events.
const mostEvents = 256

// Events keeps the most recent log records of level Info and above, even if the log itself omits
// them. When it is full, a new record replaces the oldest record of the most frequent message. So a
// night of slow commands does not displace the reason why a server was ejected. The zero Events is
// empty.
type Events struct {
	mu     sync.Mutex
	list   []record          // the records that are kept, oldest first
	follow map[*Sampler]bool // samplers that publish each new record to their watchers
}

// record is one log record that is kept as an event.
type record struct {
	msg  string
	data []byte // the whole record with its description, as JSON
}

// Tee returns a log handler that keeps all records of level Info and above in ev. It also passes
// all records to the handler `next`.
func (ev *Events) Tee(next slog.Handler) slog.Handler { return tee{ev, next, nil} }

// Last returns the kept events as JSON objects, oldest first.
func (ev *Events) Last() [][]byte {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	list := make([][]byte, len(ev.list))
	for i := range ev.list {
		list[i] = ev.list[i].data
	}
	return list
}

func (ev *Events) add(msg string, b []byte) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if len(ev.list) == mostEvents {
		of := map[string]int{}
		for i := range ev.list {
			of[ev.list[i].msg]++
		}
		most := slices.MaxFunc(ev.list, func(a, b record) int { return of[a.msg] - of[b.msg] }).msg
		i := slices.IndexFunc(ev.list, func(e record) bool { return e.msg == most })
		ev.list = slices.Delete(ev.list, i, i+1)
	}
	ev.list = append(ev.list, record{msg, b})
	for s := range ev.follow {
		s.publish("", "event", b)
	}
}

func (ev *Events) subscribe(s *Sampler, yes bool) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.follow == nil {
		ev.follow = map[*Sampler]bool{}
	}
	if yes {
		ev.follow[s] = true
	} else {
		delete(ev.follow, s)
	}
}

// tee is a slog.Handler that keeps records as events and passes them to another handler.
type tee struct {
	events *Events
	next   slog.Handler
	attrs  []slog.Attr
}

func (t tee) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || t.next.Enabled(ctx, l)
}

func (t tee) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		t.events.add(r.Message, t.encode(r))
	}
	if t.next.Enabled(ctx, r.Level) {
		return t.next.Handle(ctx, r)
	}
	return nil
}

func (t tee) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tee{t.events, t.next.WithAttrs(attrs), append(slices.Clip(t.attrs), attrs...)}
}

// WithGroup ignores the group for events, because Ringside's logs have no groups.
func (t tee) WithGroup(name string) slog.Handler {
	return tee{t.events, t.next.WithGroup(name), t.attrs}
}

// mostText is the maximum length of each text in an event, in Unicode characters.
const mostText = 300

func (t tee) encode(r slog.Record) []byte {
	is, reports := map[string]any{}, event.Other
	put := func(a slog.Attr) bool {
		if e, ok := event.Of(a.Value); ok {
			reports = e
			return true
		}
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindBool:
			is[a.Key] = v.Any()
		default:
			text := []rune(v.String())
			is[a.Key] = string(text[:min(len(text), mostText)])
		}
		return true
	}
	for _, a := range t.attrs {
		put(a)
	}
	r.Attrs(put)
	is["t"], is["level"], is["msg"] = r.Time.UnixMilli(), r.Level.String(), r.Message
	if r.Time.IsZero() {
		is["t"] = time.Now().UnixMilli()
	}
	is["told"] = describe(reports, is)
	b, _ := json.Marshal(is) // Marshal cannot fail for these types
	return b
}
