//go:build linux

package load

// The checker with right replies split at every position, and with all kinds of wrong replies.

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

var testWork = Workload{Conns: 1, Depth: 4, Keys: 3, Value: 20, KeySize: 12, Count: 10}

// hit returns a server's reply for key i in the text protocol.
func hit(d *data, i int) string {
	return fmt.Sprintf("VALUE %s %d %d\r\n%s\r\n", d.key(i), i, d.size, d.value(i))
}

// feed passes replies to the checker in pieces of the given size, as the loop does, and returns the
// number of completed requests.
func feed(c *checker, replies string, piece int) (answered int, err error) {
	var rest []byte
	for at := 0; at < len(replies); at += piece {
		b := append(rest, replies[at:min(at+piece, len(replies))]...)
		for {
			n, whole, err := c.consume(b)
			b = b[n:]
			if err != nil {
				return answered, err
			}
			if !whole {
				break
			}
			c.pop()
			answered++
		}
		rest = bytes.Clone(b)
	}
	return answered, nil
}

func TestCheckerTakesRightRepliesInEverySplit(t *testing.T) {
	d := newData(testWork)
	replies := hit(d, 9) + hit(d, 1) + hit(d, 0) + "END\r\n" + // in the servers' order
		"STORED\r\n" +
		hit(d, 4) + "END\r\n" +
		"END\r\n"
	for piece := 1; piece <= len(replies); piece++ {
		c := newChecker(d, nil, 4, 3)
		c.push(request{kind: get, first: 9, n: 3})
		c.push(request{kind: set, first: 2, n: 1})
		c.push(request{kind: get, first: 4, n: 1})
		c.push(request{kind: fence})
		if answered, err := feed(&c, replies, piece); answered != 4 || err != nil {
			t.Fatalf("in pieces of %d bytes: %d answered, %v", piece, answered, err)
		}
	}
}

func TestLossyCheckerCountsWhatIsMissing(t *testing.T) {
	d := newData(testWork)
	for _, row := range []struct {
		name    string
		due     []request
		replies string
		want    Lost
	}{
		{"a miss", []request{{kind: get, first: 4, n: 1}}, "END\r\n", Lost{Misses: 1}},
		{"some of a multi-get", []request{{kind: get, first: 8, n: 3}}, hit(d, 0) + "END\r\n", Lost{Misses: 2}},
		{"an error for the rest", []request{{kind: get, first: 3, n: 3}}, hit(d, 4) + "SERVER_ERROR down\r\n", Lost{Misses: 2, Errors: 1}},
		{"a write refused", []request{{kind: set, first: 1, n: 1}}, "SERVER_ERROR down\r\n", Lost{Errors: 1}},
		{"a fence refused", []request{{kind: fence}}, "SERVER_ERROR down\r\n", Lost{Errors: 1}},
		{"now and then", []request{{kind: get, first: 2, n: 1}, {kind: get, first: 2, n: 1}}, "END\r\n" + hit(d, 2) + "END\r\n", Lost{Misses: 1}},
	} {
		for piece := 1; piece <= len(row.replies); piece++ {
			var lost Lost
			c := newChecker(d, &lost, 4, 3)
			for _, r := range row.due {
				c.push(r)
			}
			if answered, err := feed(&c, row.replies, piece); answered != len(row.due) || err != nil || lost != row.want {
				t.Fatalf("%s, in pieces of %d bytes: %d answered, lost %+v, error %v", row.name, piece, answered, lost, err)
			}
		}
	}
	for _, lie := range []string{"CLIENT_ERROR bad\r\n", "ERROR\r\n", hit(d, 5), strings.Replace(hit(d, 4), string(d.value(4)), string(d.value(5)), 1)} {
		c := newChecker(d, new(Lost), 4, 3)
		c.push(request{kind: get, first: 4, n: 1})
		if _, err := feed(&c, lie+"END\r\n", 7); err == nil {
			t.Errorf("a lossy load takes %q", lie)
		}
	}
}

func TestCheckerFindsEveryLie(t *testing.T) {
	d := newData(testWork)
	one := request{kind: get, first: 4, n: 1}
	three := request{kind: get, first: 3, n: 3}
	header := fmt.Sprintf("VALUE %s 4 20\r\n", d.key(4))
	flipped := []byte(hit(d, 4))
	flipped[len(flipped)-3] ^= 1

	for _, lie := range []struct {
		name    string
		due     []request
		replies string
		says    string
	}{
		{"one wrong bit", []request{one}, string(flipped) + "END\r\n", "wrong value"},
		{"another key's value", []request{one}, header + string(d.value(5)) + "\r\nEND\r\n", "wrong value"},
		{"another key", []request{one}, hit(d, 5) + "END\r\n", "not asked for"},
		{"a key nobody has", []request{one}, "VALUE kkk000000099 99 20\r\n", "expected the value"},
		{"wrong flags", []request{one}, strings.Replace(hit(d, 4), " 4 20", " 5 20", 1), "expected the value"},
		{"wrong length", []request{one}, strings.Replace(hit(d, 4), " 4 20", " 4 21", 1), "expected the value"},
		{"short value", []request{one}, header + string(d.value(4)[:19]) + "\r\nEND\r\n", "wrong value"},
		{"long value", []request{one}, header + string(d.value(4)) + "x\r\nEND\r\n", "no line end"},
		{"miss", []request{one}, "END\r\n", "a miss"},
		{"miss of one in three", []request{three}, hit(d, 3) + hit(d, 5) + "END\r\n", "1 of the 3 keys"},
		{"twice the same", []request{three}, hit(d, 3) + hit(d, 3), "twice"},
		{"no end", []request{one}, hit(d, 4) + hit(d, 4), "twice"},
		{"swapped replies", []request{one, {kind: get, first: 5, n: 1}}, hit(d, 5) + "END\r\n" + hit(d, 4) + "END\r\n", "not asked for"},
		{"swapped kinds", []request{one, {kind: set, n: 1}}, "STORED\r\n" + hit(d, 4) + "END\r\n", "expected the value"},
		{"lost reply", []request{{kind: set, n: 1}, one}, hit(d, 4) + "END\r\n", `expected "STORED\r\n"`},
		{"surplus reply", []request{{kind: set, n: 1}}, "STORED\r\nSTORED\r\n", "a reply without a request"},
		{"answered fence", []request{{kind: fence}}, hit(d, 4), "expected"},
		{"not stored", []request{{kind: set, n: 1}}, "NOT_STORED\r\n", "NOT_STORED"},
		{"error for a read", []request{one}, "SERVER_ERROR no server\r\n", "SERVER_ERROR"},
		{"error in a value's place", []request{three}, hit(d, 3) + "SERVER_ERROR late\r\n", "SERVER_ERROR"},
		{"bare line feed", []request{{kind: set, n: 1}}, "STORED\n", "expected"},
		{"endless line", []request{one}, strings.Repeat("x", maxLine+1), "without end"},
	} {
		for _, piece := range []int{1, 7, 1000} {
			c := newChecker(d, nil, 4, 3)
			for _, r := range lie.due {
				c.push(r)
			}
			_, err := feed(&c, lie.replies, piece)
			if err == nil || !strings.Contains(err.Error(), lie.says) {
				t.Errorf("%s, in pieces of %d bytes: error %v, want one that says %q", lie.name, piece, err, lie.says)
			}
		}
	}
}

func TestRequestsCostNoAllocation(t *testing.T) {
	d := newData(testWork)
	c := newChecker(d, nil, 4, 3)
	replies := []byte(hit(d, 3) + hit(d, 4) + hit(d, 5) + "END\r\nSTORED\r\n")
	out := make([]byte, 0, 1024)
	if allocs := testing.AllocsPerRun(100, func() {
		out, _ = d.appendGet(out[:0], 3, 3, nil, 0)
		out = d.appendSet(out, 2)
		c.push(request{kind: get, first: 3, n: 3})
		c.push(request{kind: set, first: 2, n: 1})
		for b := replies; len(b) > 0; {
			n, whole, err := c.consume(b)
			if !whole || err != nil {
				t.Fatal(whole, err)
			}
			c.pop()
			b = b[n:]
		}
	}); allocs != 0 {
		t.Errorf("%v allocations for a multi-get and a set", allocs)
	}
}

func TestValuesDiffer(t *testing.T) {
	work := testWork
	work.Count = 2000
	d := newData(work)
	seen := make(map[string]int)
	for i := range work.Count {
		if j, ok := seen[string(d.value(i))]; ok {
			t.Fatalf("keys %d and %d have the same value", i, j)
		}
		seen[string(d.value(i))] = i
	}
}
