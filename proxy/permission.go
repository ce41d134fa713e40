package proxy

// This file rejects commands that the user of a client may not run.

import (
	"log/slog"
	"sync/atomic"

	"ringside/proxy/client"
	"ringside/proxy/table"
	"ringside/proxy/wire"
)

// permitted is a handler for a client with limits: the configuration says what it may do. A client without
// such limits does not use it, so they cost other clients nothing.
type permitted struct {
	*handler
	may *table.Permission
}

// notAllowed is the error for a command that the user may not run.
const notAllowed = "not allowed"

// permit determines what the client s may do, after it has connected or logged in, and after a reload. A
// client of a listener that asks for neither a login nor a certificate may do everything.
func (e *Engine) permit(s *client.Session) {
	d := s.Handler.(*handler)
	s.Front = d
	if d.Listener == nil || e.gen.Permissions == nil {
		return
	}
	id, known := s.User()
	switch names := s.CertificateNames(); {
	case known:
		s.Front = &permitted{d, e.gen.Permissions.OfUser(id)}
	case d.Users == nil && (names != nil || d.Certificates): // a client that connected before certificates were needed may do nothing
		s.Front = &permitted{d, e.gen.Permissions.OfCertificate(names)}
	}
}

// LoggedIn implements client.Handler.
func (d *handler) LoggedIn(s *client.Session) { d.permit(s) }

// Serve rejects the request in Engine.Req, or serves it.
func (d *permitted) Serve(s *client.Session, raw []byte) (taken bool) {
	if d.allows(raw) {
		return d.Engine.Serve(s, raw)
	}
	if d.Req.Flags&wire.TooLarge != 0 {
		s.Swallow = d.Req.Swallow
	}
	d.reject(s)
	return false
}

// ServeQuiet leaves all quiet gets to Serve.
func (d *permitted) ServeQuiet(*client.Session, []byte) bool { return false }

// NoMemory rejects a storage command without changing the old value, if the user may not run it.
func (d *permitted) NoMemory(s *client.Session, raw []byte, rest int) {
	if d.allows(raw) {
		d.handler.NoMemory(s, raw, rest)
		return
	}
	s.Swallow = int64(rest)
	d.reject(s)
}

func (d *permitted) reject(s *client.Session) {
	d.Shared.CountRejected(d.may.Name)
	d.LogLimited(slog.LevelWarn, d.may.Name, "command rejected: users does not allow it", "user", d.may.Name, "client", s.Peer(), "command", d.Req.Op.Command(d.Req.Dialect, d.Req.Flags))
	d.refuseKey(s, notAllowed)
}

// allows reports whether the user may run the request in Engine.Req, which has the bytes raw.
func (d *permitted) allows(raw []byte) bool {
	r, may := &d.Req, d.may
	read, write := false, false
	switch r.Op {
	case wire.Get, wire.Gets, wire.Debug:
		read, write = !r.Flags.IsBinaryTouch(), r.Flags&wire.Effects != 0
	case wire.Gat, wire.Gats, wire.Incr, wire.Decr:
		read, write = true, true
	case wire.FlushAll, wire.Memlimit, wire.Stats:
		return may.Admin
	case wire.Noop, wire.Version, wire.Verbosity, wire.Quit, wire.Shutdown, wire.Bad: // these reach no server, or show nothing of it
		return true
	default:
		write = true
	}
	if read && !may.Read || write && !may.Write {
		return false
	}
	if may.Routes == nil {
		return true
	}
	if r.NumKeys <= 1 {
		return d.allowsKey(r.Key.Of(raw))
	}
	for _, key := range r.Several {
		if !d.allowsKey(key.Of(raw)) {
			return false
		}
	}
	return true
}

// allowsKey reports whether the user may use key, which is spelled as in the request. An invalidation
// of a tag needs the routes with tags of all listeners, because values of each of them may have the tag.
func (d *permitted) allowsKey(key []byte) bool {
	if d.Req.Flags&wire.Base64 != 0 {
		key, _ = wire.DecodeKey(nil, key)
	}
	if d.Tagged {
		key = key[:d.CutAt(key)]
	}
	rt := d.Fitting(key)
	if rt == nil {
		return false
	}
	if rt.Tags == nil || !rt.Tags.Command {
		return d.may.AllowsRoute(table.RouteName(rt.Prefix, rt.Match))
	}
	for _, lst := range d.Listeners {
		for i := range lst.Routes {
			if o := &lst.Routes[i]; o.Tags != nil && !o.Tags.Command && !d.may.AllowsRoute(table.RouteName(o.Prefix, o.Match)) {
				return false
			}
		}
	}
	return true
}

// CountRejected counts a command that the configuration does not allow the user.
func (p *Proxy) CountRejected(user string) {
	count, _ := p.rejected.LoadOrStore(user, new(atomic.Uint64))
	count.(*atomic.Uint64).Add(1)
}

// Rejected returns how many commands of each user were rejected, because the configuration does not allow
// them.
func (p *Proxy) Rejected() map[string]uint64 {
	all := map[string]uint64{}
	p.rejected.Range(func(name, count any) bool {
		all[name.(string)] = count.(*atomic.Uint64).Load()
		return true
	})
	return all
}
