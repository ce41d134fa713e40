package ring

// This file contains the orders in which clients number the servers of a list.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Order returns the indices of servers, in the order in which a client numbers the
// servers.
type Order func(servers []Server) []int

// Listed numbers the servers in the order of the list.
func Listed(servers []Server) []int {
	order := make([]int, len(servers))
	for i := range order {
		order[i] = i
	}
	return order
}

// ByLength sorts servers by the length of the name, then by the name, as twemproxy
// does. A server without a configured name is called by its host if it has memcached's
// port, else by host:port.
func ByLength(servers []Server) []int {
	name := func(s Server) string {
		switch {
		case s.Name != "":
			return s.Name
		case s.Path != "":
			return s.Path + ":"
		case s.Port == DefaultPort:
			return s.Host
		}
		return s.Bare()
	}
	return sorted(servers, func(a, b Server) int {
		a.Name, b.Name = name(a), name(b)
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
}

// ByHost sorts servers by the bytes of the host, then by the port, as libmemcached does
// with SORT_HOSTS.
func ByHost(servers []Server) []int {
	return sorted(servers, func(a, b Server) int {
		return cmp.Or(cmp.Compare(a.Host+a.Path, b.Host+b.Path), cmp.Compare(a.Port, b.Port))
	})
}

// Natural sorts servers by the text of the address. It compares groups of digits as
// numbers, as Grafana's dskit does.
func Natural(servers []Server) []int {
	return sorted(servers, func(a, b Server) int { return CompareNatural(a.Text(), b.Text()) })
}

func sorted(servers []Server, compare func(a, b Server) int) []int {
	order := Listed(servers)
	slices.SortStableFunc(order, func(i, j int) int { return compare(servers[i], servers[j]) })
	return order
}

// CompareNatural compares two texts. It divides them into groups of digits and groups of other
// characters, and compares groups of digits as numbers. If one text is a prefix of the
// other, the shorter text sorts first.
func CompareNatural(a, b string) int {
	for a != "" && b != "" {
		var runA, runB string
		runA, a = run(a)
		runB, b = run(b)
		x, errA := strconv.Atoi(runA)
		y, errB := strconv.Atoi(runB)
		order := strings.Compare(runA, runB)
		if errA == nil && errB == nil {
			order = cmp.Compare(x, y)
		}
		if order != 0 {
			return order
		}
	}
	return cmp.Compare(len(a), len(b))
}

// run splits s after its leading digits. If s does not begin with a digit, run splits
// it before the first digit.
func run(s string) (run, rest string) {
	digits := digit(s[0])
	end := 1
	for end < len(s) && digit(s[end]) == digits {
		end++
	}
	return s[:end], s[end:]
}

func digit(b byte) bool { return '0' <= b && b <= '9' }
