package admin

// A client of the control API, for commands.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"ringside/proxy/live"
)

// Client asks the admin interface of a running Ringside. It may be used by several
// goroutines at once.
type Client struct {
	address string
	http    http.Client
}

// NewClient makes a client of the admin interface at address: host:port, or a
// path on network "unix".
func NewClient(network, address string) *Client {
	c := &Client{address: address}
	dial := &net.Dialer{Timeout: 2 * time.Second}
	c.http.Timeout = 5 * time.Second
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial.DialContext(ctx, network, address)
		},
	}
	return c
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// patient is c for a question that may take so long; 0: for ever. c stays as it is: others
// may ask meanwhile.
func (c *Client) patient(d time.Duration) *Client {
	p := *c
	p.http.Timeout = d
	return &p
}

// Servers returns the servers of every pool.
func (c *Client) Servers(ctx context.Context) ([]live.ServerState, error) {
	list, _, err := c.ServersAndHealth(ctx)
	return list, err
}

// ServersAndHealth returns the servers of every pool, and the state of all pools: nil if the
// Ringside is of a release that does not send it.
func (c *Client) ServersAndHealth(ctx context.Context) ([]live.ServerState, *live.Overall, error) {
	var a allServers
	err := c.ask(ctx, "GET", "/control/servers", nil, &a)
	return a.Servers, a.Overall, err
}

// Clients returns the clients that come first in an order, one of ClientOrders.
func (c *Client) Clients(ctx context.Context, sort string, limit int) (ClientsAnswer, error) {
	var a ClientsAnswer
	err := c.ask(ctx, "GET", "/control/clients?sort="+url.QueryEscape(sort)+"&limit="+strconv.Itoa(limit), nil, &a)
	return a, err
}

// Now returns what a pool's servers and the whole proxy do, counted over so long;
// of the pool that is worst off, if none is named.
func (c *Client) Now(ctx context.Context, pool string, window time.Duration) (*live.Now, error) {
	var is live.Now
	err := c.patient(window+10*time.Second).ask(ctx, "GET", "/api/now?for="+window.String()+"&pool="+url.QueryEscape(pool), nil, &is)
	return &is, err
}

// Stream calls take for every event of a pool's stream, until that ends or take
// fails.
func (c *Client) Stream(ctx context.Context, pool string, take func(topic string, data []byte) error) error {
	return c.events(ctx, "/api/stream?pool="+url.QueryEscape(pool), take)
}

// Trace calls take with what happens to the keys that fit one of patterns, for so long.
// Each data is a trace.Traced as JSON.
func (c *Client) Trace(ctx context.Context, patterns []string, life time.Duration, take func(topic string, data []byte) error) error {
	err := c.events(ctx, "/api/trace?"+url.Values{"pattern": patterns, "for": {life.String()}}.Encode(), take)
	if errors.Is(err, io.ErrUnexpectedEOF) { // its time is over
		return nil
	}
	return err
}

func (c *Client) events(ctx context.Context, path string, take func(topic string, data []byte) error) error {
	w, err := c.patient(0).send(ctx, "GET", path, nil)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	if w.StatusCode >= 300 {
		answer, _ := io.ReadAll(io.LimitReader(w.Body, 1<<20))
		return c.refused(w, answer)
	}
	lines := bufio.NewScanner(w.Body)
	lines.Buffer(nil, 16<<20)
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
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// Order gives an order (drain, down, restore) for a server, and returns how it
// is then. pool may be empty if only one has the server. With force the last copy of keys
// goes, too.
func (c *Client) Order(ctx context.Context, pool, server, order string, force bool) ([]live.ServerState, error) {
	query := url.Values{}
	if pool != "" {
		query.Set("pool", pool)
	}
	if force {
		query.Set("force", "true")
	}
	var a serversAnswer
	err := c.ask(ctx, "POST", "/control/servers/"+url.PathEscape(server)+"/"+url.PathEscape(order)+"?"+query.Encode(), nil, &a)
	return a.Servers, err
}

// Reload makes Ringside read its configuration again, and returns when all its
// loops go by it. A large table takes seconds to build, and it waits while keys are about to
// go to other servers by the last one.
func (c *Client) Reload(ctx context.Context) (Reloaded, error) {
	var done Reloaded
	err := c.patient(steerLife).ask(ctx, "POST", "/control/reload", nil, &done)
	return done, err
}

// Ready asks whether clients should come to this Ringside, and returns what it says
// if they should.
func (c *Client) Ready(ctx context.Context) (string, error) { return c.probe(ctx, "/readyz") }

// Alive asks whether every loop answers.
func (c *Client) Alive(ctx context.Context) (string, error) { return c.probe(ctx, "/healthz") }

// probe asks what is answered by one line of text.
func (c *Client) probe(ctx context.Context, path string) (string, error) {
	w, err := c.send(ctx, "GET", path, nil)
	if err != nil {
		return "", err
	}
	defer w.Body.Close()
	line, err := io.ReadAll(io.LimitReader(w.Body, 64<<10))
	said := strings.TrimSpace(string(line))
	switch {
	case err != nil:
		return "", fmt.Errorf("the admin interface at %s: %w", c.address, err)
	case w.StatusCode != http.StatusOK && w.StatusCode != http.StatusServiceUnavailable:
		return "", c.strange(w)
	case w.StatusCode != http.StatusOK:
		return "", &StatusError{w.StatusCode, said}
	}
	return said, nil
}

// HandOver asks Ringside for its listening sockets. The answer is where they are
// to be had, by a process of the same user.
func (c *Client) HandOver(ctx context.Context) (socket string, err error) {
	var a handOverAnswer
	err = c.ask(ctx, "POST", "/control/hand-over", nil, &a)
	return a.Socket, err
}

// InvalidateTags invalidates tags, and returns what each server has answered.
func (c *Client) InvalidateTags(ctx context.Context, what Invalidate) ([]Invalidated, error) {
	var a struct{ Servers []Invalidated }
	err := c.patient(steerLife).ask(ctx, "POST", "/control/tags/invalidate", what, &a)
	return a.Servers, err
}

// Faults returns what is wrong on purpose, and whether that is allowed at all.
func (c *Client) Faults(ctx context.Context) (list []FaultState, allowed bool, err error) {
	var a faultsAnswer
	err = c.ask(ctx, "GET", "/control/faults", nil, &a)
	return a.Faults, a.Allowed, err
}

// Fault sets a fault and returns it.
func (c *Client) Fault(ctx context.Context, f FaultState) (FaultState, error) {
	var set FaultState
	err := c.ask(ctx, "POST", "/control/faults", f, &set)
	return set, err
}

// Lift ends the fault with that ID.
func (c *Client) Lift(ctx context.Context, id int) error {
	return c.ask(ctx, "DELETE", "/control/faults/"+strconv.Itoa(id), nil, nil)
}

// StatusError is what a Ringside that was reached has answered instead.
type StatusError struct {
	Status int
	Text   string
}

func (e *StatusError) Error() string { return e.Text }

// send sends body as JSON.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, text)
	if err != nil {
		return nil, err
	}
	r.Header.Set(steering, "1")
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
		return nil, cut(method, reached, fmt.Errorf("no answer from the admin interface at %s: %w", c.address, err))
	}
	return w, nil
}

// cut is the error of a request whose answer has not come, or not whole: if it was to change
// something, and its Ringside may have got it, nobody knows whether it did.
func cut(method string, reached bool, err error) error {
	if method == "GET" || !reached {
		return err
	}
	return SayUnsure(err)
}

// strange is an answer that no Ringside gives.
func (c *Client) strange(w *http.Response) error {
	return &StatusError{w.StatusCode, fmt.Sprintf("the admin interface at %s answers %s: is it a Ringside's?", c.address, w.Status)}
}

// refused is an answer that says no, and why.
func (c *Client) refused(w *http.Response, answer []byte) error {
	var said struct{ Error string }
	if json.Unmarshal(answer, &said) != nil || said.Error == "" {
		return c.strange(w)
	}
	return &StatusError{w.StatusCode, said.Error}
}

// ask is send, and reads the answer into to.
func (c *Client) ask(ctx context.Context, method, path string, body, to any) error {
	w, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(w.Body, 16<<20))
	if err != nil {
		return cut(method, true, fmt.Errorf("the admin interface at %s: %w", c.address, err))
	}
	if w.StatusCode >= 300 {
		return c.refused(w, answer)
	}
	if to == nil {
		return nil
	}
	if err := json.Unmarshal(answer, to); err != nil {
		return fmt.Errorf("the admin interface at %s answers what is no JSON: is it a Ringside's?", c.address)
	}
	return nil
}
