package admin

// This file has a client of the control API, which ringside's commands use.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/live"
)

// Client sends requests to the admin interface of a running instance. It is safe for concurrent
// use.
type Client struct {
	address  string
	http     http.Client
	scheme   string // http or https
	user     string // empty: no login
	password string
}

// NewClient returns a client of the admin interface at address. The address is host:port, or a path
// if network is "unix".
func NewClient(network, address string) *Client {
	c := &Client{address: address, scheme: "http"}
	dial := &net.Dialer{Timeout: 2 * time.Second}
	c.http.Timeout = 5 * time.Second
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial.DialContext(ctx, network, address)
		},
	}
	return c
}

// UseTLS makes c use TLS with these settings. It must be called before the first request.
func (c *Client) UseTLS(config *tls.Config) {
	c.scheme = "https"
	c.http.Transport.(*http.Transport).TLSClientConfig = config
}

// LogIn makes c log in with each request. It must be called before the first request.
func (c *Client) LogIn(user, password string) { c.user, c.password = user, password }

// operatorName returns the name of the user that runs this process; with sudo, of the user that has
// called it. It returns "" if the name is not known, or cannot be sent in a header.
func operatorName() string {
	name := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"))
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return name
}

// Address returns the address that the client connects to.
func (c *Client) Address() string { return c.address }

// Close closes the idle connections to the admin interface.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// patient returns a copy of c with the timeout d for its requests; 0: no timeout. c itself is not
// changed, because other goroutines may use it.
func (c *Client) patient(d time.Duration) *Client {
	p := *c
	p.http.Timeout = d
	return &p
}

// Servers returns the servers of every pool, with their states.
func (c *Client) Servers(ctx context.Context) ([]live.ServerState, error) {
	list, _, err := c.ServersAndHealth(ctx)
	return list, err
}

// ServersAndHealth returns the servers of every pool, and the state of all pools together. This
// state is nil if the instance runs an older release that does not send it.
func (c *Client) ServersAndHealth(ctx context.Context) ([]live.ServerState, *live.Overall, error) {
	a, err := answerTo[allServers](ctx, c, "GET", "/control/servers", nil)
	return a.Servers, a.Overall, err
}

// Clients returns at most `limit` clients of the instance. They are the first ones in the order
// `sort`, which is one of ClientOrders.
func (c *Client) Clients(ctx context.Context, sort string, limit int) (ClientsAnswer, error) {
	return answerTo[ClientsAnswer](ctx, c, "GET", "/control/clients?sort="+url.QueryEscape(sort)+"&limit="+strconv.Itoa(limit), nil)
}

// Now returns what a pool's servers and the whole proxy do. The counts are those of the given
// window. If pool is empty, the instance chooses the pool in the worst state.
func (c *Client) Now(ctx context.Context, pool string, window time.Duration) (*live.Now, error) {
	return answerTo[*live.Now](ctx, c.patient(window+10*time.Second), "GET", "/api/now?for="+window.String()+"&pool="+url.QueryEscape(pool), nil)
}

// Stream calls the function take for every event of a pool's stream. It returns when the stream
// ends, when nothing arrives for 8 s, or when take returns an error.
func (c *Client) Stream(ctx context.Context, pool string, take func(topic string, data []byte) error) error {
	return c.events(ctx, "/api/stream?pool="+url.QueryEscape(pool), 8*live.Every, take)
}

// Trace calls the function take for requests on the keys that match one of the patterns, for the
// time `life`. data is a live.Traced as JSON.
func (c *Client) Trace(ctx context.Context, patterns []string, life time.Duration, take func(topic string, data []byte) error) error {
	err := c.events(ctx, "/api/trace?"+url.Values{"pattern": patterns, "for": {life.String()}}.Encode(), 2*streamQuiet, take)
	if errors.Is(err, io.ErrUnexpectedEOF) { // the stream ends in this way when its time is over
		return nil
	}
	return err
}

// events calls the function take for every event of the stream at path. It returns an error if
// nothing arrives for the time `silence`: the instance hangs, or packets are lost.
func (c *Client) events(ctx context.Context, path string, silence time.Duration, take func(topic string, data []byte) error) error {
	return c.whileHeard(ctx, silence, func(ctx context.Context, quiet *time.Timer) error {
		return c.readEvents(ctx, path, func() { quiet.Reset(silence) }, func(topic string, data []byte) error {
			quiet.Stop() // take may wait for a terminal
			defer quiet.Reset(silence)
			return take(topic, data)
		})
	})
}

// errSilent is the error for an instance that has sent nothing for some time.
var errSilent = errors.New("it hangs, or the network fails")

// whileHeard calls do. If do does not reset the timer quiet for the time `silence`, the context of do
// ends, and whileHeard returns errSilent.
func (c *Client) whileHeard(ctx context.Context, silence time.Duration, do func(ctx context.Context, quiet *time.Timer) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	quiet := time.AfterFunc(silence, func() { end(errSilent) })
	defer quiet.Stop()
	err := do(ctx, quiet)
	if err != nil && context.Cause(ctx) == errSilent {
		return fmt.Errorf("the admin interface at %s has sent nothing for more than %v: %w", c.address, silence, errSilent)
	}
	return err
}

// readEvents calls the function arrived when bytes of the stream at path arrive, and the function take
// for each event.
func (c *Client) readEvents(ctx context.Context, path string, arrived func(), take func(topic string, data []byte) error) error {
	w, err := c.patient(0).send(ctx, "GET", path, nil)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	if w.StatusCode >= 300 {
		answer, _ := io.ReadAll(io.LimitReader(w.Body, largestPage))
		return c.refused(w, answer)
	}
	lines := bufio.NewScanner(observed{w.Body, arrived})
	lines.Buffer(nil, largestAnswer)
	topic := ""
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			topic = name
		} else if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			if err := take(topic, data); err != nil {
				return err
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return c.tooLong("a line", largestAnswer)
	case err != nil:
		return err
	}
	return io.ErrUnexpectedEOF
}

// observed is a reader that calls a function after each read.
type observed struct {
	io.Reader
	read func()
}

func (r observed) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.read()
	return n, err
}

// Order sends an order (drain, down or restore) for a server, and returns the state of the server
// after it. pool may be empty if only one pool has the server. With force, the instance executes
// the order even if the server may have the last replica of keys.
func (c *Client) Order(ctx context.Context, pool, server, order string, force bool) ([]live.ServerState, error) {
	query := url.Values{}
	if pool != "" {
		query.Set("pool", pool)
	}
	if force {
		query.Set("force", "true")
	}
	a, err := answerTo[serversAnswer](ctx, c, "POST", "/control/servers/"+url.PathEscape(server)+"/"+url.PathEscape(order)+"?"+query.Encode(), nil)
	return a.Servers, err
}

// Reload makes the instance reload its configuration, and returns when all loops use the new one.
// To build a large table takes seconds. The reload also waits while keys are about to move because
// of an earlier reload.
func (c *Client) Reload(ctx context.Context, accepts Consent) (Reloaded, error) {
	query := url.Values{}
	if accepts.Moves {
		query.Set("accept", "true")
	}
	if accepts.Dead {
		query.Set("dead", "true")
	}
	return longOrder[Reloaded](ctx, c, "/control/reload?"+query.Encode(), nil)
}

// Config returns the configuration file that the instance uses.
func (c *Client) Config(ctx context.Context) (ConfigAnswer, error) {
	return answerTo[ConfigAnswer](ctx, c, "GET", "/control/config", nil)
}

// Ready returns an error if clients should not use this instance now. Otherwise it returns the text
// of the page /readyz.
func (c *Client) Ready(ctx context.Context) (string, error) { return c.probe(ctx, "/readyz") }

// Alive returns an error if a loop of the instance does not answer. Otherwise it returns the text
// of the page /healthz.
func (c *Client) Alive(ctx context.Context) (string, error) { return c.probe(ctx, "/healthz") }

// probe requests a page of the admin interface that is one line of text.
func (c *Client) probe(ctx context.Context, path string) (string, error) {
	w, line, err := c.answer(ctx, "GET", path, nil, largestPage)
	said := strings.TrimSpace(string(line))
	switch {
	case err != nil:
		return "", err
	case w.StatusCode != http.StatusOK && w.StatusCode != http.StatusServiceUnavailable:
		return "", c.strange(w)
	case w.StatusCode != http.StatusOK:
		return "", &StatusError{w.StatusCode, said}
	}
	return said, nil
}

// HandOver asks the instance to hand over its listening sockets to the next process. A process of the same
// user gets them at the socket in the reply.
func (c *Client) HandOver(ctx context.Context) (HandOver, error) {
	return answerTo[HandOver](ctx, c, "POST", "/control/hand-over", nil)
}

// InvalidateTags invalidates the tags in what, and returns the result for each server.
func (c *Client) InvalidateTags(ctx context.Context, what Invalidate) ([]Invalidated, error) {
	a, err := longOrder[struct{ Servers []Invalidated }](ctx, c, "/control/tags/invalidate", what)
	return a.Servers, err
}

// Faults returns the faults that are set, and whether faults are allowed.
func (c *Client) Faults(ctx context.Context) (list []FaultState, allowed bool, err error) {
	a, err := answerTo[faultsAnswer](ctx, c, "GET", "/control/faults", nil)
	return a.Faults, a.Allowed, err
}

// Fault sets a fault and returns it as the instance has stored it.
func (c *Client) Fault(ctx context.Context, f FaultState) (FaultState, error) {
	return answerTo[FaultState](ctx, c, "POST", "/control/faults", f)
}

// Lift ends the fault with the given ID.
func (c *Client) Lift(ctx context.Context, id int) error {
	return c.ask(ctx, "DELETE", "/control/faults/"+strconv.Itoa(id), nil, nil)
}

// StatusError is an error that an instance has sent as a reply, with the HTTP status.
type StatusError struct {
	Status int
	Text   string
}

func (e *StatusError) Error() string { return e.Text }

// send sends a request with body as JSON; nil: no body.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.scheme+"://localhost"+path, text)
	if err != nil {
		return nil, err
	}
	if c.user != "" {
		r.SetBasicAuth(c.user, c.password)
	}
	r.Header.Set(steering, "1")
	r.Header.Set(operatorHeader, operatorName())
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	w, err := c.http.Do(r)
	if err != nil {
		if inner := (*url.Error)(nil); errors.As(err, &inner) {
			err = inner.Err
		}
		reached := true
		if failed := (*net.OpError)(nil); errors.As(err, &failed) {
			reached = failed.Op != "dial"
		}
		return nil, cut(method, reached, fmt.Errorf("no answer from the admin interface at %s: %w; check that ringside serve runs there with admin: in its file, or name its address with --admin", c.address, err))
	}
	return w, nil
}

// cut returns the error for a request without a complete reply. If the request changes something
// and may have reached the instance, the error says that the result is unknown.
func cut(method string, reached bool, err error) error {
	if method == "GET" || !reached {
		return err
	}
	return sayUnsure(err)
}

// strange returns the error for a reply that does not come from a Ringside instance.
func (c *Client) strange(w *http.Response) error {
	if c.scheme == "http" && w.StatusCode == http.StatusBadRequest {
		return &StatusError{w.StatusCode, fmt.Sprintf("the admin interface at %s answers %s: if it uses TLS, name its CA with --ca, or its configuration file with -c", c.address, w.Status)}
	}
	return &StatusError{w.StatusCode, fmt.Sprintf("the admin interface at %s answers %s: is it a Ringside instance?", c.address, w.Status)}
}

// refused returns the error that is in an error reply.
func (c *Client) refused(w *http.Response, answer []byte) error {
	var said struct{ Error string }
	if json.Unmarshal(answer, &said) != nil || said.Error == "" {
		return c.strange(w)
	}
	return &StatusError{w.StatusCode, said.Error}
}

// Largest sizes in bytes of what an instance sends.
const (
	largestAnswer = 16 << 20 // JSON
	largestPage   = 1 << 20  // text
)

// tooLong returns the error for a reply of which a part has more than `most` bytes.
func (c *Client) tooLong(part string, most int) error {
	return fmt.Errorf("the admin interface at %s sends %s of more than %d MiB: is it a Ringside instance?", c.address, part, most>>20)
}

// answer sends a request with body as JSON, and returns the reply with its text, which has at most `most` bytes.
func (c *Client) answer(ctx context.Context, method, path string, body any, most int) (*http.Response, []byte, error) {
	w, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(io.LimitReader(w.Body, int64(most)+1))
	switch {
	case err != nil:
		err = cut(method, true, fmt.Errorf("the admin interface at %s: %w", c.address, err))
	case len(text) > most:
		err = cut(method, true, c.tooLong("an answer", most))
	}
	return w, text, err
}

// ask sends a request with body as JSON, and decodes the reply into `to`. If `to` is nil, the reply
// is ignored.
func (c *Client) ask(ctx context.Context, method, path string, body, to any) error {
	w, text, err := c.answer(ctx, method, path, body, largestAnswer)
	switch {
	case err != nil:
		return err
	case w.StatusCode >= 300:
		return c.refused(w, text)
	case to != nil && json.Unmarshal(text, to) != nil:
		return fmt.Errorf("the admin interface at %s answers what is not JSON: is it a Ringside instance?", c.address)
	}
	return nil
}

// answerTo sends a request, and returns the reply, which is JSON.
func answerTo[T any](ctx context.Context, c *Client, method, path string, body any) (a T, err error) {
	err = c.ask(ctx, method, path, body, &a)
	return a, err
}

// hangs is the time without any answer after which an instance hangs: an order that takes long is given up.
const hangs = 15 * time.Second

// longOrder sends an order that may take as long as steerLife, and returns the reply. It also sends probes, and returns
// an error if the instance does not answer them. If it does not answer the first one, the order is not sent.
func longOrder[T any](ctx context.Context, c *Client, path string, body any) (a T, err error) {
	if err := c.answers(ctx); err != nil {
		return a, err
	}
	err = c.whileHeard(ctx, hangs, func(ctx context.Context, quiet *time.Timer) error {
		go func() {
			for ctx.Err() == nil {
				if c.answers(ctx) == nil {
					quiet.Reset(hangs)
				}
				select {
				case <-ctx.Done():
				case <-time.After(hangs / 3):
				}
			}
		}()
		return c.patient(steerLife).ask(ctx, "POST", path, body, &a)
	})
	if errors.Is(err, errSilent) {
		err = sayUnsure(err)
	}
	return a, err
}

// answers returns nil if the instance answers a probe, whatever the answer is.
func (c *Client) answers(ctx context.Context) error {
	w, err := c.send(ctx, "GET", "/healthz", nil)
	if err == nil {
		w.Body.Close()
	}
	return err
}
