package discover

// This file asks an ElastiCache endpoint for the nodes of its cluster.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"ringside/proxy/serverlist"
)

// askCluster asks the configuration endpoint for the nodes of its cluster, or else the nodes of its
// previous answer. An answer with a lower version than the previous one is an error, until the endpoint
// has repeated it for the time keep.
func askCluster(ctx context.Context, s serverlist.Source, m *memory) ([]serverlist.Server, error) {
	at := net.JoinHostPort(s.Host, s.Port)
	version, list, err := askNode(ctx, at)
	for _, node := range m.nodes {
		if err == nil || ctx.Err() != nil {
			break
		}
		if v, l, nodeErr := askNode(ctx, node); nodeErr == nil {
			version, list, err = v, l, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if err := m.version.Take(m.now(), version, m.keep); err != nil {
		return nil, err
	}
	m.nodes = m.nodes[:0]
	for _, s := range list {
		m.nodes = append(m.nodes, s.Address)
	}
	return list, nil
}

// askNode asks one node for the nodes of its cluster.
func askNode(ctx context.Context, at string) (version uint64, list []serverlist.Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime/3) // so that there is time to ask another node
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at)
	if err != nil {
		return 0, nil, err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	c.SetDeadline(end)
	if _, err := io.WriteString(c, "config get cluster\r\n"); err != nil {
		return 0, nil, err
	}
	version, list, err = readCluster(bufio.NewReader(io.LimitReader(c, mostBytes)))
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", at, err)
	}
	return version, list, nil
}

// readCluster reads the reply to `config get cluster`:
//
//	CONFIG cluster 0 BYTES
//	VERSION
//	HOST|IP|PORT HOST|IP|PORT …
//
//	END
func readCluster(r *bufio.Reader) (version uint64, list []serverlist.Server, err error) {
	line, err := r.ReadString('\n')
	words := strings.Fields(line)
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("the reply to config get cluster has no complete first line: %w", err)
	case len(words) != 4 || words[0] != "CONFIG" || words[1] != "cluster":
		return 0, nil, fmt.Errorf("it is not a configuration endpoint: its reply to config get cluster is %.60q", strings.TrimSpace(line))
	}
	size, err := strconv.Atoi(words[3])
	if err != nil || size < 0 || size > mostBytes {
		return 0, nil, fmt.Errorf("the size in %.60q is wrong", strings.TrimSpace(line))
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, fmt.Errorf("the reply to config get cluster is not complete: %w", err)
	}
	rest, _ := io.ReadAll(io.LimitReader(r, 7)) // the line end of the data, and END
	if !slices.Equal(strings.Fields(string(rest)), []string{"END"}) {
		return 0, nil, errors.New("the reply does not end with END")
	}
	first, nodes, _ := strings.Cut(string(data), "\n")
	if version, err = strconv.ParseUint(strings.TrimSpace(first), 10, 64); err != nil {
		return 0, nil, fmt.Errorf("the version %.40q is not a number", first)
	}
	for _, node := range strings.Fields(nodes) {
		parts := strings.Split(node, "|")
		if len(parts) != 3 || parts[0] == "" && parts[1] == "" {
			return 0, nil, fmt.Errorf("%.60q is not host|ip|port", node)
		}
		name, at := parts[0], parts[1]
		if name == "" {
			name = at
		}
		if at == "" {
			at = name
		}
		s := serverlist.Server{Weight: 1}
		if s.Name, err = endpoint(net.JoinHostPort(name, parts[2])); err == nil {
			s.Address, err = endpoint(net.JoinHostPort(at, parts[2]))
		}
		if err != nil {
			return 0, nil, fmt.Errorf("%.60q: %w", node, err)
		}
		list = append(list, s)
	}
	return version, list, nil
}
