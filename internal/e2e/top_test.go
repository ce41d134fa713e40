package e2e

// This file tests ringside top on a terminal that the test creates and reads.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal that runs a program, and its screen content.
type terminal struct {
	master *os.File
	cmd    *exec.Cmd
	exited chan error

	mu            sync.Mutex
	width, height int
	cells         [][]rune
	row, col      int
	all           strings.Builder // complete output of the program
}

// startTerminal runs a program on a terminal of the given size.
func startTerminal(t *testing.T, width, height int, env []string, program string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	x := &terminal{master: master, exited: make(chan error, 1)}
	x.resize(t, width, height)
	x.cmd = exec.Command(program, args...)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.Env = append(os.Environ(), env...)
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { x.exited <- x.cmd.Wait() }()
	go x.read()
	t.Cleanup(func() {
		x.cmd.Process.Kill()
		master.Close()
	})
	return x
}

func (x *terminal) resize(t *testing.T, width, height int) {
	t.Helper()
	x.mu.Lock()
	x.width, x.height = width, height
	x.cells = make([][]rune, height)
	for i := range x.cells {
		x.cells[i] = []rune(strings.Repeat(" ", width))
	}
	x.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: uint16(height)}); err != nil {
		t.Fatal(err)
	}
}

var control = regexp.MustCompile("^\x1b\\[(\\??)([0-9;]*)([A-Za-z])")

// read applies the program's output to the screen: characters, and the few control
// sequences that ringside top uses.
func (x *terminal) read() {
	var rest string
	b := make([]byte, 1<<16)
	for {
		n, err := x.master.Read(b)
		if err != nil {
			return
		}
		x.mu.Lock()
		x.all.Write(b[:n])
		rest += string(b[:n])
		for rest != "" {
			if rest[0] == 0x1b {
				m := control.FindStringSubmatch(rest)
				if m == nil {
					break // the rest of the sequence is still missing
				}
				rest = rest[len(m[0]):]
				x.obey(m[1], m[2], m[3])
				continue
			}
			if n := strings.IndexByte(rest, 0x1b); n < 0 && len(rest) < 4 && rest[len(rest)-1] >= 0x80 {
				break // may be an incomplete character
			}
			for i, r := range rest {
				if r == 0x1b || r == '\uFFFD' {
					rest = rest[i:]
					break
				}
				if x.row < x.height && x.col < x.width {
					x.cells[x.row][x.col] = r
				}
				x.col++
				if i+len(string(r)) == len(rest) {
					rest = ""
				}
			}
			if strings.HasPrefix(rest, "\uFFFD") || rest != "" && rest[0] >= 0x80 {
				break
			}
		}
		x.mu.Unlock()
	}
}

func (x *terminal) obey(private, numbers, what string) {
	switch {
	case private != "":
	case what == "H":
		row, col, _ := strings.Cut(numbers, ";")
		x.row, _ = strconv.Atoi(row)
		x.col, _ = strconv.Atoi(col)
		x.row, x.col = x.row-1, x.col-1
	case what == "K" && x.row < x.height:
		for i := x.col; i < x.width; i++ {
			x.cells[x.row][i] = ' '
		}
	case what == "J":
		for _, line := range x.cells {
			for i := range line {
				line[i] = ' '
			}
		}
	}
}

func (x *terminal) screen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var b strings.Builder
	for _, line := range x.cells {
		b.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return b.String()
}

// shows waits until all texts are on the screen.
func (x *terminal) shows(t *testing.T, texts ...string) {
	t.Helper()
	var is string
	for end := time.Now().Add(2 * patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		is = x.screen()
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(is, text)
		}
		if !missing {
			return
		}
	}
	t.Fatalf("waited in vain for %q; the screen is\n%s", texts, is)
}

func (x *terminal) keys(t *testing.T, keys string) {
	t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (x *terminal) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-x.exited:
		if err != nil {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

// topOnce runs ringside top --once and returns its output and exit status.
func (r *ringside) topOnce(t *testing.T, args ...string) (text string, code int) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, append([]string{"top", "--admin", r.admin, "--once"}, args...)...)
	out, _ := cmd.Output() // the exit status is returned
	return string(out), cmd.ProcessState.ExitCode()
}

// top is topOnce for an instance that is known to run. It retries if there is no reply,
// because a loop of a starved instance may be late.
func (r *ringside) top(t *testing.T, args ...string) (text string, code int) {
	t.Helper()
	eventually(t, "ringside top has an answer", func() bool {
		text, code = r.topOnce(t, args...)
		return code != 1
	})
	return text, code
}

func TestTop(t *testing.T) {
	t.Parallel()
	servers := startMemcacheds(t, 3)
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.address)
	}
	r := startRingside(t, "epoll", pageFront(addresses...))
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	// The first call shows the memory of all servers: --once waits for that, however
	// short the measuring time of --for is.
	var fresh struct {
		Asked   bool
		Servers []struct {
			Used *float64 `json:"used_bytes"`
		}
	}
	first, _ := r.top(t, "--json", "--for", "100ms")
	if err := json.Unmarshal([]byte(first), &fresh); err != nil {
		t.Fatal(err)
	}
	for i, s := range fresh.Servers {
		if !fresh.Asked || s.Used == nil {
			t.Errorf("right after the start, of server %d is said %+v", i, s)
		}
	}

	someLoad(t, r.address, 4)

	big := startTerminal(t, 120, 40, nil, binary, "top", "--admin", r.admin)
	small := startTerminal(t, 80, 24, []string{"NO_COLOR=1"}, binary, "top", "--admin", r.admin)
	tiny := startTerminal(t, 59, 9, nil, binary, "top", "--admin", r.admin)
	big.shows(t, "All 3 servers serve", "SHARE", "MEMORY by item size", "data", "● s0", "● s1", "● s2")
	small.shows(t, "All 3 servers serve", "REQ/s", "● s2", "q quit")
	tiny.shows(t, "All 3 servers serve")
	for _, x := range []*terminal{small, tiny} {
		if is := x.screen(); strings.Contains(is, "SHARE") || x == tiny && strings.Contains(is, "SERVER") {
			t.Errorf("a screen too small shows\n%s", is)
		}
	}
	t.Logf("120x40:\n%s\n80x24:\n%s\n59x9:\n%s", big.screen(), small.screen(), tiny.screen())

	// Keys filter, sort, enlarge parts, open a server and drain it.
	small.keys(t, "/s1\r")
	eventually(t, "only s1 is left", func() bool {
		is := small.screen()
		return strings.Contains(is, "● s1") && !strings.Contains(is, "● s2")
	})
	small.keys(t, "\x1b")
	small.shows(t, "● s2")
	small.keys(t, "r")
	small.shows(t, "REQ/s▼")
	small.resize(t, 100, 30)
	small.shows(t, "● s0", "q quit")
	for _, part := range [][2]string{{"2", "HOT KEY"}, {"3", "MEMORY by item size"}, {"4", "t asks for patterns"}, {"?", "sort by r requests"}, {"?", "t asks for patterns"}, {"1", "● s0"}, {"1", "HOT KEY"}} {
		small.keys(t, part[0])
		small.shows(t, part[1])
	}
	small.keys(t, "n\x1b[B")
	small.keys(t, "\r")
	small.shows(t, "next       nothing, while it answers", "MEMORY of s0 by item size")
	small.keys(t, "\r-")
	small.shows(t, "an update every 2s", "● s2")
	small.keys(t, "+d")
	small.shows(t, "Drain s0? y or n")
	small.keys(t, "y")
	small.shows(t, "s0 is drained")
	big.shows(t, "s0 is drained", "◇ s0")

	// Output for scripts.
	text, status := r.top(t, "--json", "--for", "200ms")
	var is struct {
		Health  struct{ Title string }
		Servers []struct{ Name, State string }
	}
	if err := json.Unmarshal([]byte(text), &is); err != nil || status != 3 || is.Health.Title != "s0 is drained" || len(is.Servers) != 3 {
		t.Errorf("exit code %d, %v: %s", status, err, text)
	}
	if text, status = r.top(t, "--for", "200ms"); status != 3 || !strings.Contains(text, "s0 is drained") || strings.Contains(text, "\x1b") {
		t.Errorf("exit code %d: %s", status, text)
	}

	// Ringside hangs, and goes on.
	r.pause(t)
	for _, x := range []*terminal{big, small, tiny} {
		eventually(t, "the screen says that its figures are old", func() bool {
			is := strings.Join(strings.Fields(x.screen()), " ") // the sentence may have several lines
			return strings.Contains(is, "✗ No connection to Ringside. The admin interface at "+r.admin+" has sent nothing for more than 8s:") && strings.Contains(is, "What you see is old, from ")
		})
	}
	t.Logf("hangs:\n%s\n%s\n%s", big.screen(), small.screen(), tiny.screen())
	r.resume(t)
	for _, x := range []*terminal{big, small, tiny} {
		x.shows(t, "s0 is drained")
	}

	// Ringside ends, and the terminals are closed by keys.
	r.Kill()
	big.shows(t, "No connection to Ringside")
	if _, status = r.topOnce(t, "--for", "200ms"); status != 1 {
		t.Errorf("nobody to ask: exit code %d", status)
	}
	small.mu.Lock()
	if regexp.MustCompile("\x1b\\[3[0-9]m").MatchString(small.all.String()) {
		t.Error("NO_COLOR, and there are colours")
	}
	small.mu.Unlock()
	big.keys(t, "q")
	big.ends(t)
	small.keys(t, "\x03")
	small.ends(t)
	tiny.keys(t, "\x1b")
	tiny.keys(t, "\x1b")
	tiny.ends(t)
}
