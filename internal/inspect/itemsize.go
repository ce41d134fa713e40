package inspect

// This file warns about servers with an item_size_max that does not fit the setting limits.value, and about
// servers without cas.

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"ringside/proxy/health/divert"
	"ringside/proxy/secure"
	"ringside/proxy/table"
)

// askedWithin is the time limit for all requests and name look-ups of one call. A server that does not
// reply in time, or whose name is not resolved in time, is not reported, because the configuration may
// be for another machine. ringside check --connect reports it.
const askedWithin = 2 * time.Second

// usualItemSize is the item_size_max in bytes of a memcached that was started without -I.
const usualItemSize = 1 << 20

// Connect asks each server of the table t for its settings. It returns the warnings of ItemSizes, and one for each
// server that does not reply as memcached does.
func Connect(ctx context.Context, t *table.Table, dial map[string]string) []string {
	return itemSizes(ctx, t, asking(t, dial), true)
}

// asking returns the function that asks a server for its settings: see ItemSizes.
func asking(t *table.Table, dial map[string]string) func(ctx context.Context, s table.Target, p *table.Pool) (settings, error) {
	return func(ctx context.Context, s table.Target, p *table.Pool) (settings, error) {
		return askSettings(ctx, s, p, cmp.Or(dial[s.Address], s.Address), !slices.Contains(t.Pools, p))
	}
}

// ItemSizes asks each server of the table t for the size of the largest item that it stores. It
// returns a warning for each address with a size that does not fit limits.value. A size below
// limits.value causes a warning only if it is also below memcached's default. Otherwise there
// would be a warning for every usual server, because the default of limits.value is larger than
// that of memcached. A usual server itself rejects a value that is too large. ItemSizes also warns if
// servers with replicas of the same keys have different sizes, if a server has no cas although its pool
// or a route needs it, and if a server rejects commands that resize.mode of its pool needs. dial has the addresses of
// servers that are not at their address in the table: see config.File.Dial.
func ItemSizes(ctx context.Context, t *table.Table, dial map[string]string) []string {
	return itemSizes(ctx, t, asking(t, dial), false)
}

// itemSizes returns the warnings of ItemSizes. unreachable adds those of Connect.
func itemSizes(ctx context.Context, t *table.Table, ask func(ctx context.Context, s table.Target, p *table.Pool) (settings, error), unreachable bool) []string {
	var lock sync.Mutex
	sizes, all := map[string]int{}, map[string]settings{} // by address
	list := eachServer(ctx, t, func(ctx context.Context, s table.Target, p *table.Pool) string {
		has, err := ask(ctx, s, p)
		if err == nil {
			lock.Lock()
			sizes[s.Address], all[s.Address] = has.itemSize, has
			lock.Unlock()
		}
		switch size, limit := has.itemSize, t.Limits.Value; {
		case errors.Is(err, errHandshake), errors.Is(err, errLogin):
			return fmt.Sprintf("server %s: %v", s.Address, err)
		case err != nil && unreachable:
			return fmt.Sprintf("server %s can't be asked from here: %v", s.Address, connectReason(err))
		case err != nil:
		case size > limit:
			return fmt.Sprintf("server %s stores items of up to %d bytes (item_size_max), but limits.value rejects values of more than %d bytes; set limits.value to the server's size to store larger values", s.Address, size, limit)
		case size < limit && size < usualItemSize:
			return fmt.Sprintf("server %s stores items of up to %d bytes only (item_size_max), and limits.value accepts values of up to %d bytes; start the server with a larger -I, or lower limits.value", s.Address, size, limit)
		}
		return ""
	})
	return append(append(list, unequalSizes(t, sizes)...), lacking(t, all)...)
}

// connectReason returns why a server can't be asked, without its address.
func connectReason(err error) error {
	var op *net.OpError
	var system syscall.Errno
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", askedWithin)
	case errors.Is(err, io.EOF):
		return errors.New("it closes the connection")
	case errors.As(err, &system):
		return system
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

// lacking returns a warning for each server that lacks what its pool or a route needs. all has the settings of
// the servers by address.
func lacking(t *table.Table, all map[string]settings) (list []string) {
	needs := map[*table.Pool]bool{}
	for _, l := range t.Listeners {
		for _, rt := range l.Routes {
			for _, p := range append([]*table.Pool{rt.Pool}, rt.Also...) {
				needs[p] = needs[p] || rt.Tags != nil || rt.Guard != nil
			}
		}
	}
	for _, p := range withSources(t) {
		for _, s := range p.Servers {
			has := all[s.Address]
			for _, w := range []struct {
				lacks bool
				text  string
			}{
				{has.noCas && (needs[p] || p.NeedsKeeper(t)), "has no cas, which failover, replicas, tags and the guard need: start memcached without -C"},
				{has.noCrawler && p.Resize == table.ResizeWarm, "can't list its keys, which resize.mode: warm needs: start memcached without no_lru_crawler, or send it the command lru_crawler enable"},
				{has.noMeta && !slices.Contains(t.Pools, p), "rejects meta commands, which fill_from needs: use memcached 1.6.13 or later there, or remove fill_from"},
				{has.noFlush && p.Resize == table.ResizeFlush, "rejects flush_all, which resize.mode: flush needs: start memcached without -F"},
			} {
				if text := fmt.Sprintf("server %s of pool %s %s", s.Address, p.Name, w.text); w.lacks && !slices.Contains(list, text) {
					list = append(list, text)
				}
			}
		}
	}
	return list
}

// unequalSizes returns a warning for each set of pools that keep replicas of the same keys, if their
// servers store items of different sizes. sizes has the sizes by address, of the servers that have replied.
func unequalSizes(t *table.Table, sizes map[string]int) (list []string) {
	for _, l := range t.Listeners {
		for _, rt := range l.Routes {
			if rt.Copies.Copies == 0 {
				continue
			}
			var small, large string
			for _, p := range append([]*table.Pool{rt.Pool}, rt.Also...) {
				for _, s := range p.Servers {
					size, ok := sizes[s.Address]
					if ok && (small == "" || size < sizes[small]) {
						small = s.Address
					}
					if ok && (large == "" || size > sizes[large]) {
						large = s.Address
					}
				}
			}
			w := fmt.Sprintf("servers of pool %s keep replicas of the same keys, but server %s stores items of up to %d bytes (item_size_max) and server %s of up to %d bytes; start them with the same -I", rt.Pool.Name, small, sizes[small], large, sizes[large])
			if sizes[small] != sizes[large] && !slices.Contains(list, w) {
				list = append(list, w)
			}
		}
	}
	return list
}

// withSources returns the pools of t, and those from which they fill.
func withSources(t *table.Table) []*table.Pool {
	list := slices.Clone(t.Pools)
	for _, p := range t.Pools {
		if p.Fill != nil {
			list = append(list, p.Fill.From)
		}
	}
	return list
}

// eachServer calls warn once for each address of a server in the table t, for all at the same time. It
// returns the warnings that are not empty, in the order of the servers.
func eachServer(ctx context.Context, t *table.Table, warn func(ctx context.Context, s table.Target, p *table.Pool) string) []string {
	ctx, cancel := context.WithTimeout(ctx, askedWithin)
	defer cancel()
	var warnings []*string
	seen := map[string]bool{}
	var wait sync.WaitGroup
	for _, p := range withSources(t) {
		for _, s := range p.Servers {
			if !seen[s.Address] {
				seen[s.Address] = true
				w := new(string)
				warnings = append(warnings, w)
				wait.Go(func() { *w = warn(ctx, s, p) })
			}
		}
	}
	wait.Wait()
	var list []string
	for _, w := range warnings {
		if *w != "" {
			list = append(list, *w)
		}
	}
	return list
}

// errHandshake is the error of a server with which a TLS connection is not possible.
var errHandshake = errors.New("TLS handshake")

// errLogin is the error of a server that does not accept the login of its pool.
var errLogin = errors.New("login")

// logIn sends the login of the pool p on c, and reads the reply from r. It returns an error if the server
// does not accept the login.
func logIn(c net.Conn, r *bufio.Reader, p *table.Pool) error {
	if _, err := c.Write(p.Login.AppendRequest(nil)); err != nil {
		return err
	}
	line, err := r.ReadString('\n')
	switch line = strings.TrimRight(line, "\r\n"); {
	case err == io.EOF:
		return fmt.Errorf("%w: the server closes the connection. If it was started with -S (SASL), it speaks only the binary protocol, and can't be used: start it with -Y", errLogin)
	case err != nil:
		return err
	case line != "STORED":
		return fmt.Errorf("%w: %s", errLogin, p.Login.Refusal(line))
	}
	return nil
}

// refusal returns the error err of the first request to a server of the pool p. With TLS 1.3, a client learns after
// the handshake that the server refuses its certificate, or only that the connection is closed.
func refusal(p *table.Pool, err error) error {
	if !p.TLS.On() || errors.Is(err, errLogin) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: the server ends the connection after it, and may refuse the certificate of the pool (tls.cert), or need one: %w", errHandshake, err)
}

// settings are the settings of a server that its replies depend on.
type settings struct {
	itemSize  int  // item_size_max in bytes
	noCas     bool // items have no cas
	noCrawler bool // the server rejects lru_crawler metadump
	noFlush   bool // the server rejects flush_all
	noMeta    bool // the server rejects the meta command mg
}

// askSettings asks the server s of the pool p, which is at the address `at`, for its settings. With meta it also tries
// a meta command. It returns an error if the server does not report item_size_max.
func askSettings(ctx context.Context, s table.Target, p *table.Pool, at string, meta bool) (has settings, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, s.Network, at)
	if err != nil {
		return has, err
	}
	defer c.Close()
	if p.TLS.On() {
		config, err := secure.ServerConfig(p.TLS, secure.Verified(s.Address, at))
		if err != nil {
			return has, err
		}
		t := tls.Client(c, config)
		if err := t.HandshakeContext(ctx); err != nil {
			return has, fmt.Errorf("%w: %w", errHandshake, secure.Reason(err))
		}
		c = t
	}
	if end, ok := ctx.Deadline(); ok {
		c.SetDeadline(end)
	}
	r := bufio.NewReader(io.LimitReader(c, 64<<10)) // the limit is far above memcached's replies, which have about 3 KiB
	if p.Login.On() {
		if err := logIn(c, r, p); err != nil {
			return has, refusal(p, err)
		}
	}
	request := "stats settings\r\n"
	if meta {
		request += "mg " + divert.Reserved + " v\r\n"
	}
	if _, err := io.WriteString(c, request); err != nil {
		return has, refusal(p, err)
	}
	if _, err := r.Peek(1); err != nil {
		return has, refusal(p, err)
	}
	lines, last := bufio.NewScanner(r), ""
	for lines.Scan() {
		stat, ok := strings.CutPrefix(lines.Text(), "STAT ")
		if !ok {
			last = lines.Text()
			has.noMeta = meta && lines.Scan() && strings.HasPrefix(lines.Text(), "ERROR")
			break
		}
		if text, ok := strings.CutPrefix(stat, "item_size_max "); ok {
			has.itemSize, _ = strconv.Atoi(text)
		}
		has.noCas = has.noCas || stat == "cas_enabled no"
		has.noCrawler = has.noCrawler || stat == "lru_crawler no"
		has.noFlush = has.noFlush || stat == "flush_enabled no"
	}
	if has.itemSize > 0 {
		return has, nil
	}
	if last != "END" && last != "" {
		return has, fmt.Errorf("its reply to stats settings is %.100q; check that memcached runs at its address", last)
	}
	return has, fmt.Errorf("server %s does not report item_size_max", s.Address)
}
