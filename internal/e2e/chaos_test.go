package e2e

// This file tests reloads that switch every setting on and off while commands of all three
// protocols are in flight and servers are killed and restarted. TestReplies in internal/fleet
// tests the same in a simulation.

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ringside/internal/testenv"
)

// chaosClient sends batches of commands until stop is closed. Each batch ends with a no-op, whose
// reply differs from all other replies. Before that reply, each other command of the batch must
// receive exactly one reply.
type chaosClient struct {
	rng    *rand.Rand
	opaque uint32
	sent   *atomic.Int64
	logsIn bool // it logs in first, because the listener may have an auth_file
}

func (c *chaosClient) key() string {
	return chaosPrefixes[c.rng.IntN(len(chaosPrefixes))] + fmt.Sprintf("k%d", c.rng.IntN(4))
}

// chaosPause is the pause of a client between two batches. Reloads need traffic, but not speed, and many
// tests run at the same time.
const chaosPause = 3 * time.Millisecond

// play sends batches on conn until stop is closed or the connection fails.
func (c *chaosClient) play(conn net.Conn, frames bool, stop <-chan struct{}) error {
	in := bufio.NewReader(conn)
	if c.logsIn {
		_ = conn.SetDeadline(time.Now().Add(testenv.Hang))
		if err := c.login(conn, in, frames); err != nil {
			return err
		}
	}
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(chaosPause):
		}
		_ = conn.SetDeadline(time.Now().Add(testenv.Hang))
		batch := c.lines
		if frames {
			batch = c.frames
		}
		if err := batch(conn, in); err != nil {
			return err
		}
	}
}

// login sends a name and a password, and ignores the reply. If the listener has no auth_file,
// memcached's text login is an ordinary set, and the binary login is an unknown command.
func (c *chaosClient) login(conn net.Conn, in *bufio.Reader, frames bool) error {
	if !frames {
		if _, err := io.WriteString(conn, "set login 0 0 12\r\nchaos secret\r\n"); err != nil {
			return err
		}
		_, err := in.ReadString('\n')
		return err
	}
	const mechanism, said = "PLAIN", "\x00chaos\x00secret"
	b := []byte{0x80, 0x21, 0, byte(len(mechanism)), 0, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(len(mechanism)+len(said)))
	b = append(append(b, make([]byte, 12)...), mechanism+said...)
	if _, err := conn.Write(b); err != nil {
		return err
	}
	var head [24]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	_, err := in.Discard(int(binary.BigEndian.Uint32(head[8:])))
	return err
}

// lines sends a batch of the text and meta protocols, and checks the replies.
func (c *chaosClient) lines(conn net.Conn, in *bufio.Reader) error {
	var text strings.Builder
	var reads []bool
	for range 1 + c.rng.IntN(6) {
		k, read := c.key(), false
		switch c.rng.IntN(12) {
		case 0, 1:
			fmt.Fprintf(&text, "get %s\r\n", k)
			read = true
		case 2:
			keys := 2
			if c.rng.IntN(8) == 0 { // more than a turn has: Ringside requests the rest later, perhaps after a reload
				keys = 1100
			}
			text.WriteString("gets " + k)
			for range keys {
				text.WriteString(" " + c.key())
			}
			text.WriteString("\r\n")
			read = true
		case 3, 4:
			fmt.Fprintf(&text, "set %s 0 0 1\r\n5\r\n", k)
		case 5:
			if c.rng.IntN(4) == 0 {
				k = "tag:n1"
			}
			fmt.Fprintf(&text, "delete %s\r\n", k)
		case 6, 7:
			fmt.Fprintf(&text, "incr %s 1\r\n", k)
		case 8:
			fmt.Fprintf(&text, "decr %s 1\r\n", k)
		case 9:
			fmt.Fprintf(&text, "touch %s 60\r\n", k)
		case 10:
			fmt.Fprintf(&text, "ma %s MD\r\n", k)
		case 11:
			if c.rng.IntN(10) > 0 {
				fmt.Fprintf(&text, "append %s 0 0 1\r\n1\r\n", k)
			} else {
				text.WriteString("flush_all\r\n")
			}
		}
		reads = append(reads, read)
	}
	asked := text.String()
	if _, err := io.WriteString(conn, asked+"mn\r\n"); err != nil {
		return err
	}
	var got strings.Builder
	for i, read := range append(reads, false) {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return err
			}
			got.WriteString(line)
			word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			isLast := i == len(reads)
			if isLast && c.logsIn && word == "CLIENT_ERROR" {
				word = "MN" // the login failed, so the listener rejects mn
			}
			if (word == "MN") != isLast || !read && (word == "VALUE" || word == "END") {
				return fmt.Errorf("%w: %q comes as the reply number %d of %q; all replies until then, without data: %q", errChaos, line, i, asked, got.String())
			}
			if word == "VALUE" { // the data may be any bytes: after a reload without tags it can include the header of tags
				size, err := strconv.Atoi(strings.Fields(line)[3])
				if err != nil {
					return fmt.Errorf("%w: %q: %v", errChaos, line, err)
				}
				if _, err := io.CopyN(io.Discard, in, int64(size)); err != nil {
					return err
				}
				if end, err := in.ReadString('\n'); err != nil {
					return err
				} else if end != "\r\n" {
					return fmt.Errorf("%w: %q follows the %d bytes of a value, in the replies to %q", errChaos, end, size, asked)
				}
				continue
			}
			break
		}
	}
	c.sent.Add(int64(len(reads)))
	return nil
}

var errChaos = fmt.Errorf("not one reply to each command")

// frames sends a batch of the binary protocol, and checks the opaques of the replies.
func (c *chaosClient) frames(conn net.Conn, in *bufio.Reader) error {
	var b []byte
	var asked []uint32
	add := func(opcode byte, extras int, key, value string) {
		c.opaque++
		asked = append(asked, c.opaque)
		b = append(b, 0x80, opcode, 0, byte(len(key)), byte(extras), 0, 0, 0)
		b = binary.BigEndian.AppendUint32(b, uint32(extras+len(key)+len(value)))
		b = binary.BigEndian.AppendUint32(b, c.opaque)
		b = append(b, make([]byte, 8+extras)...)
		b = append(append(b, key...), value...)
	}
	for range 1 + c.rng.IntN(5) {
		switch c.rng.IntN(5) {
		case 0:
			add(0x00, 0, c.key(), "")
		case 1:
			add(0x01, 8, c.key(), "5")
		case 2:
			add(0x04, 0, c.key(), "")
		default:
			add(0x05+byte(c.rng.IntN(2)), 20, c.key(), "")
		}
	}
	add(0x0a, 0, "", "")
	if _, err := conn.Write(b); err != nil {
		return err
	}
	var head [24]byte
	for _, want := range asked {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		if got := binary.BigEndian.Uint32(head[12:]); got != want {
			return fmt.Errorf("%w: frame %d comes, %d has no reply", errChaos, got, want)
		}
		if _, err := in.Discard(int(binary.BigEndian.Uint32(head[8:]))); err != nil {
			return err
		}
	}
	c.sent.Add(int64(len(asked)))
	return nil
}

// TestReloadsOfAllFeatures reloads random files under traffic. Ringside must keep running, accept
// each file, and send exactly one reply to each command.
func TestReloadsOfAllFeatures(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		reloads := 15
		if testing.Short() {
			reloads = 5
		}
		if testenv.Full() {
			reloads = 60
		}
		servers := startMemcacheds(t, 8)
		r := startRingside(t, driver, front(servers[:3]))
		dir := shortDir(t)
		second, third, users := freeAddress(t, ownHost()), filepath.Join(dir, "s"), filepath.Join(dir, "users")
		allow := func(user string) {
			if err := os.WriteFile(users, []byte(user+":secret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		allow("chaos")
		var addresses []string
		for _, s := range servers {
			addresses = append(addresses, s.address)
		}
		base := chaosBase([]string{r.address, second, "unix:" + third}, r.admin, addresses)
		settings := chaosSettingsOf(users, dir)
		var sent atomic.Int64
		var clients sync.WaitGroup
		stop, faults := make(chan struct{}), make(chan error, 16)
		for i := range 12 {
			c := &chaosClient{rng: rand.New(rand.NewPCG(uint64(i), 7)), sent: &sent}
			address := r.address
			switch { // listeners that some of the files do not have
			case i%4 == 3:
				address, c.logsIn = second, true
			case i%8 == 6:
				address, c.logsIn = third, true
			}
			clients.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					conn, err := dialError(address)
					if err == nil {
						err = c.play(conn, i%3 == 2, stop)
						conn.Close()
					}
					if err == nil {
						continue
					}
					if address == r.address || strings.Contains(err.Error(), errChaos.Error()) {
						faults <- err
						return
					}
					time.Sleep(10 * time.Millisecond) // until a reload adds the listener again
				}
			})
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 8))
		order := rng.Perm(len(settings))
		for i := range reloads {
			before, asked := r.metric(t, reloadsDone), sent.Load()
			text := string(drawChaos(rng, base, settings, order[i%len(order)]))
			allow([]string{"chaos", "chaos", "another"}[rng.IntN(3)])
			var dead *memcached
			if rng.IntN(4) == 0 {
				dead = servers[rng.IntN(len(servers))]
				dead.Kill()
			}
			var paused *memcached // its replies arrive after the reload
			if dead == nil && rng.IntN(2) == 0 {
				paused = servers[rng.IntN(len(servers))]
				paused.pause(t)
			}
			r.put(t, text)
			r.signal(t, syscall.SIGHUP)
			if paused != nil {
				eventually(t, "the reload is done:\n"+text, func() bool { return r.metric(t, reloadsDone) > before || r.metric(t, reloadsFailed) > 0 })
				paused.resume(t)
			}
			eventually(t, "the reload is done, and commands are answered:\n"+text, func() bool {
				select {
				case err := <-faults:
					t.Fatalf("%v\n%s", err, text)
				default:
				}
				if n := r.metric(t, reloadsFailed); n > 0 {
					t.Fatalf("Ringside rejects the file:\n%s\n%s", text, r.Output())
				}
				return r.metric(t, reloadsDone) > before && sent.Load() > asked+200
			})
			if dead != nil {
				dead.restart(t)
			}
		}
		close(stop)
		clients.Wait()
		select {
		case err := <-faults:
			t.Fatal(err)
		default:
		}
		if n := r.metric(t, "ringside_reply_faults_total"); n != 0 || !r.Running() {
			t.Errorf("%v reply faults; running: %v", n, r.Running())
		}
	})
}
