package proxy

// This file answers clients that find servers through an ElastiCache configuration endpoint.

import (
	"fmt"
	"net/netip"

	"ringside/proxy/client"
	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

// configGet is the command with which such clients ask for the nodes of the cluster.
const configGet = "config get cluster"

// tellCluster answers config get cluster with the address that the client is connected to, as the only
// node. So the client sends everything to Ringside. tellCluster returns false if the client has no such
// address, because it uses a unix socket: the command is then unknown, as in memcached.
func (e *Engine) tellCluster(s *client.Session) bool {
	if e.Local == nil {
		return false
	}
	at, err := netip.ParseAddrPort(e.Local(&s.Link))
	if err != nil {
		return false
	}
	host := at.Addr().Unmap().WithZone("").String()
	nodes := fmt.Sprintf("1\n%s|%s|%d\n", host, host, at.Port()) // 1 is the version of the list, which never changes
	e.Req.Op = wire.Version                                      // it counts as a request for what the server is
	e.local(s, fmt.Appendf(nil, "CONFIG cluster 0 %d\r\n%s\r\nEND\r\n", len(nodes), nodes), stats.Okay)
	return true
}
