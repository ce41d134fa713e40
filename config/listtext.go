package config

// This file writes the server list of a pool as a text that other instances read: package health stores it on the servers. The
// text comes from a server, where anybody may have changed it. So it has only what decides which server owns a key, and
// it names no files and no variables.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"

	"ringside/proxy/table"
)

// mostLearned is the maximum number of servers in a list that an instance reads from a server.
const mostLearned = 1000

// listText is the server list of a pool.
type listText struct {
	Distribution string           `json:"distribution"`
	Options      PlacementOptions `json:"options"`
	Servers      []serverText     `json:"servers"`
}

type serverText struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Name    string `json:"name,omitempty"`
	Weight  int    `json:"weight"`
}

// text returns the list of p for other instances; nil: it has too many servers.
func (p *Pool) text() []byte {
	if len(p.Servers) > mostLearned {
		return nil
	}
	list := listText{Distribution: p.Distribution, Options: p.Placement}
	for _, s := range p.Servers {
		list.Servers = append(list.Servers, serverText{s.Address.Network, s.Address.Address, s.Name, s.Weight})
	}
	text, _ := json.Marshal(list) // it has only texts and numbers, so there is no error
	return text
}

// readList returns the list in a text that the function text of an instance has returned, for the pool p. All settings of p
// but the list apply.
func (p *Pool) readList(text []byte) (*table.List, error) {
	var list listText
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("it can't be read: %w", err)
	}
	if d.InputOffset() != int64(len(text)) {
		return nil, errors.New("it has more text than a list")
	}
	if n := len(list.Servers); n > mostLearned {
		return nil, fmt.Errorf("it has %d servers; at most %d are allowed", n, mostLearned)
	}
	is := *p
	is.Distribution, is.Placement, is.Servers, is.From, is.Fill = list.Distribution, list.Options, nil, nil, Fill{}
	names, addresses := map[string]bool{}, map[Address]bool{}
	for _, t := range list.Servers {
		s := Server{Address: Address{t.Network, t.Address}, Name: t.Name, Weight: t.Weight}
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("server %.100q: %w", s.label(), err)
		}
		if names[s.label()] || addresses[s.Address] {
			return nil, fmt.Errorf("server %.100q is listed twice", s.label())
		}
		names[s.label()], addresses[s.Address] = true, true
		is.Servers = append(is.Servers, s)
	}
	built, err := is.build(false)
	if err != nil {
		return nil, err
	}
	return built.List(), nil
}

// check returns an error if the server can't be one of a configuration file.
func (s *Server) check() error {
	host, port, err := net.SplitHostPort(s.Address.Address)
	number, portErr := strconv.Atoi(port)
	switch {
	case !printable(s.Address.Address), !printable(s.Name), len(s.Name) > maxName:
		return errors.New("its name or address is too long, or has spaces or control characters")
	case s.Weight < 1 || s.Weight > maxWeight:
		return fmt.Errorf("its weight %d is not between 1 and %d", s.Weight, maxWeight)
	case s.Address.Network == "unix":
		_, err = unixAddress(s.Address.Address)
		return err
	case s.Address.Network != "tcp" || err != nil || host == "" || len(host) > 2*maxName || portErr != nil || number < 0 || number > 65535:
		return errors.New("its address is not host:port")
	}
	return nil
}
