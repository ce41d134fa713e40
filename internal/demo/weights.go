package demo

// This file implements ringside demo --weights. It shows how evenly servers of different memory fill,
// without weights and with weights.

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"ringside/internal/cli"
	"ringside/internal/memnode"
)

const (
	weightUnit  = 8 << 20 // memory of a server of weight 1, in bytes
	weightValue = 1000    // size of a value, in bytes
	weightFull  = 0.68    // size of all values, as a share of all memory
)

var weightsShown = []int{1, 2, 4}

// filledServer has the figures of one server after all values have been stored.
type filledServer struct {
	Memory  int     `json:"memory_bytes"`
	Weight  int     `json:"weight"`
	Keys    int     `json:"keys"`
	Full    float64 `json:"full"` // share of its memory that is in use, 0 to 1
	Evicted int     `json:"evicted"`
}

// showWeights fills two pools of servers with different memory, and prints how full each server is. In
// the first pool all servers have the weight 1. It runs its own servers, not those at the address.
func showWeights(_ string, out io.Writer, asJSON bool) error {
	all := 0
	for _, w := range weightsShown {
		all += w * weightUnit
	}
	keys := int(weightFull * float64(all) / weightValue)
	equal, err := fillByWeight(keys, false)
	if err != nil {
		return err
	}
	weighted, err := fillByWeight(keys, true)
	if err != nil {
		return err
	}
	if asJSON {
		return cli.NewEncoder(out).Encode(map[string][]filledServer{"without_weights": equal, "with_weights": weighted})
	}
	fmt.Fprintf(out, "Three servers with different memory; %d values of %d bytes are stored.\n\n          without weights                with weights\n", keys, weightValue)
	fmt.Fprint(out, "memory       keys   full  evicted     weight    keys   full  evicted\n")
	for i, e := range equal {
		w := weighted[i]
		fmt.Fprintf(out, "%2d MiB    %7d  %4.0f%%  %7d     %6d %7d  %4.0f%%  %7d\n", e.Memory>>20, e.Keys, 100*e.Full, e.Evicted, w.Weight, w.Keys, 100*w.Full, w.Evicted)
	}
	fmt.Fprint(out, "\nringside check -c FILE shows the share of the keys of each server of your own file.\n")
	return nil
}

// fillByWeight starts servers with an instance in front of them, stores the keys, and returns how full
// the servers are. Without weighted, all servers have the weight 1.
func fillByWeight(keys int, weighted bool) (list []filledServer, err error) {
	var servers []string
	var nodes []*memnode.Node
	for i, w := range weightsShown {
		n, err := memnode.Start(memnode.Options{MemoryLimit: w * weightUnit})
		if err != nil {
			return nil, err
		}
		defer n.Close()
		is := filledServer{Memory: w * weightUnit, Weight: 1}
		if weighted {
			is.Weight = w
		}
		nodes, list = append(nodes, n), append(list, is)
		servers = append(servers, fmt.Sprintf("{name: demo%d, address: %q, weight: %d}", i+1, n.Addr(), is.Weight))
	}
	free, err := FreeAddresses("127.0.0.1:0", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	text := "pools: {main: {distribution: ketama-points, timeouts: {connect: 1m, request: 1m, deadline: 1m}, servers: [" + strings.Join(servers, ", ") + "]}}"
	in, err := StartText(free[0], free[1], text, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer in.End()
	if err := fillKeys(in.Address(), keys); err != nil {
		return nil, err
	}
	for i, n := range nodes {
		if err := list[i].ask(n.Addr().String()); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// fillKeys stores values under keys "key:0", "key:1" …
func fillKeys(address string, keys int) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	written := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(c)
		for i := range keys {
			fmt.Fprintf(w, "set key:%d 0 0 %d\r\n%0*d\r\n", i, weightValue, weightValue, i)
		}
		written <- w.Flush()
	}()
	answers := bufio.NewScanner(c)
	for i := range keys {
		if !answers.Scan() || answers.Text() != "STORED" {
			return fmt.Errorf("set of key:%d was answered %q, %v", i, answers.Text(), answers.Err())
		}
	}
	return <-written
}

// ask asks a server how many keys it has, how full it is, and how many keys it has evicted.
func (f *filledServer) ask(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprint(c, "stats\r\nquit\r\n")
	for lines := bufio.NewScanner(c); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 3 {
			continue
		}
		n, _ := strconv.Atoi(words[2])
		switch words[1] {
		case "curr_items":
			f.Keys = n
		case "bytes":
			f.Full = float64(n) / float64(f.Memory)
		case "evictions":
			f.Evicted = n
		}
	}
	return nil
}
