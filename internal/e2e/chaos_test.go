package e2e

// This file tests reloads that switch every setting on and off while commands of all three
// protocols are in flight at two instances. Servers are killed, suspended, drained and restored, and a
// new process takes over from one of the instances. TestReplies in internal/fleet tests the same in a
// simulation.

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
// receive exactly one reply, of a kind that the command can have. A quiet command receives none if its
// protocol hides it.
type chaosClient struct {
	rng    *rand.Rand
	opaque uint32
	sent   *atomic.Int64
	logsIn bool        // it logs in first, because the listener may have an auth_file
	tls    *tls.Config // nil: it does not use TLS
	wants  []chaosWant
}

// chaosWant is a command that was sent, and its expected reply.
type chaosWant struct {
	text  string
	line  *regexp.Regexp // matches the last or only line of the reply, if it is no error
	keys  []string       // a read: the keys of values that it may return
	value string         // a meta command: the key of the value that it may return
	token string         // a meta command: its opaque, which the reply repeats

	frame  uint32 // opaque of a frame
	opcode byte
	quiet  bool
}

// key returns a random key. The first two are of counters.
func (c *chaosClient) key() string {
	return chaosPrefixes[c.rng.IntN(len(chaosPrefixes))] + fmt.Sprintf("k%d", c.rng.IntN(4))
}

// counter returns a counter instead of key, for a command that may create a number.
func (c *chaosClient) counter(key string) string {
	return key[:len(key)-1] + strconv.Itoa(c.rng.IntN(2))
}

func isCounter(key string) bool { return strings.HasSuffix(key, "k0") || strings.HasSuffix(key, "k1") }

// body returns a value of key: a number, or text that names the key without its prefix, because routes can remove the
// prefix. All commands that add bytes keep this form.
func (c *chaosClient) body(key string) string {
	if isCounter(key) {
		return strconv.Itoa(c.rng.IntN(10))
	}
	return "<" + key[len(key)-2:] + strings.Repeat("x", []int{0, 1, 500, 6000}[c.rng.IntN(4)]) + ">"
}

var (
	chaosValue = regexp.MustCompile(`^(<(k\d)x*>)*$`)
	chaosName  = regexp.MustCompile(`<k\d`)
)

// judge returns what is wrong with a value of key, or nil. After a reload without tags, values can include the header of tags. A
// placeholder has no bytes.
func (c *chaosClient) judge(key string, value []byte) error {
	if isCounter(key) {
		if chaosName.Match(value) { // the header of tags can have the byte < itself
			return fmt.Errorf("%w: the counter %s has a foreign value: %.100q", errChaos, key, value)
		}
		return nil
	}
	if tagged := bytes.Contains(value, []byte("\xd7\x00")); !tagged && !chaosValue.Match(value) {
		return fmt.Errorf("%w: %s has the value %.100q", errChaos, key, value)
	}
	for _, part := range chaosName.FindAll(value, -1) {
		if string(part[1:]) != key[len(key)-2:] {
			return fmt.Errorf("%w: %s has a foreign value: %.100q", errChaos, key, value)
		}
	}
	return nil
}

// chaosPause is the pause of a client between two batches. Reloads need traffic, but not speed, and many
// tests run at the same time.
const chaosPause = 20 * time.Millisecond

// play sends batches on conn until stop is closed or the connection fails.
func (c *chaosClient) play(conn net.Conn, frames bool, stop <-chan struct{}) error {
	_ = conn.SetDeadline(time.Now().Add(testenv.Hang))
	if c.tls != nil {
		over := tls.Client(conn, c.tls)
		if err := over.Handshake(); err != nil {
			return err
		}
		conn = over
	}
	in := bufio.NewReader(conn)
	if c.logsIn {
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
		c.wants = c.wants[:0]
		var err error
		switch {
		case frames:
			err = c.frames(conn, in)
		case !c.logsIn && c.rng.IntN(8) == 0:
			err = c.quiets(conn, in)
		default:
			err = c.lines(conn, in)
		}
		if err != nil {
			return err
		}
		c.sent.Add(int64(len(c.wants)))
	}
}

// login sends a name and a password. If the listener has no auth_file, memcached's text login is an
// ordinary set, and the binary login is an unknown command.
func (c *chaosClient) login(conn net.Conn, in *bufio.Reader, frames bool) error {
	if !frames {
		if _, err := io.WriteString(conn, "set login 0 0 12\r\nchaos secret\r\n"); err != nil {
			return err
		}
		line, err := in.ReadString('\n')
		if strings.HasPrefix(line, "CLIENT_ERROR") {
			return errors.New("the login has failed")
		}
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

var (
	chaosStore  = regexp.MustCompile(`^(STORED|NOT_STORED)$`)
	chaosCas    = regexp.MustCompile(`^(STORED|NOT_STORED|EXISTS|NOT_FOUND)$`)
	chaosNumber = regexp.MustCompile(`^([0-9]+ *|NOT_FOUND)$`)
	chaosDelete = regexp.MustCompile(`^(DELETED|NOT_FOUND)$`)
	chaosTouch  = regexp.MustCompile(`^(TOUCHED|NOT_FOUND)$`)
	chaosEnd    = regexp.MustCompile(`^END$`)
	chaosOK     = regexp.MustCompile(`^OK$`)
	chaosMN     = regexp.MustCompile(`^MN$`)
	chaosME     = regexp.MustCompile(`^(ME .*|EN)$`)
	chaosMeta   = map[string]*regexp.Regexp{
		"mg": regexp.MustCompile(`^(HD|EN)( .*)?$`), "ms": regexp.MustCompile(`^(HD|NS|EX|NF)( .*)?$`),
		"md": regexp.MustCompile(`^(HD|NF|EX)( .*)?$`), "ma": regexp.MustCompile(`^(HD|NF|NS|EX)( .*)?$`),
	}
)

// line returns a random command of the text and meta protocols, and adds its expected reply.
func (c *chaosClient) line() string {
	k := c.key()
	body, noreply := c.body(k), ""
	if !c.logsIn && c.rng.IntN(10) == 0 {
		noreply = " noreply"
	}
	says := func(w chaosWant, format string, args ...any) string {
		w.text = fmt.Sprintf(format, args...)
		if noreply == "" {
			c.wants = append(c.wants, w)
		}
		return w.text
	}
	meta := func(command, flags, body string) string {
		c.opaque++
		noreply = ""
		w := chaosWant{line: chaosMeta[command], token: fmt.Sprintf("O%d", c.opaque)}
		if command == "mg" || command == "ma" {
			w.value = k
		}
		size := ""
		if command == "ms" {
			size = fmt.Sprintf(" %d", len(body)-2)
		}
		return says(w, "%s %s%s %s%s\r\n%s", command, k, size, w.token, flags, body)
	}
	reads := func(command string, keys ...string) string {
		noreply = ""
		return says(chaosWant{line: chaosEnd, keys: keys}, "%s %s\r\n", command, strings.Join(keys, " "))
	}
	one := func(of ...string) string { return of[c.rng.IntN(len(of))] }
	switch n := c.rng.IntN(20); n {
	case 0, 1:
		return reads(one("get", "gets"), k)
	case 2:
		return reads(one("gat 60", "gats 60"), k, c.key())
	case 3:
		keys := []string{k}
		more := 2
		if c.rng.IntN(40) == 0 {
			more = 1100
		}
		for range more { // many keys are more than a turn has: Ringside requests the rest later, perhaps after a reload
			keys = append(keys, c.key())
		}
		return reads(one("get", "gets"), keys...)
	case 4, 5:
		return says(chaosWant{line: chaosStore}, "set %s 0 0 %d%s\r\n%s\r\n", k, len(body), noreply, body)
	case 6:
		return says(chaosWant{line: chaosStore}, "%s %s 0 0 %d%s\r\n%s\r\n", one("add", "replace"), k, len(body), noreply, body)
	case 7:
		return says(chaosWant{line: chaosStore}, "%s %s 0 0 %d%s\r\n%s\r\n", one("append", "prepend"), k, len(body), noreply, body)
	case 8:
		return says(chaosWant{line: chaosCas}, "cas %s 0 0 %d %d%s\r\n%s\r\n", k, len(body), c.rng.IntN(1000), noreply, body)
	case 9, 10:
		k = c.counter(k)
		return says(chaosWant{line: chaosNumber}, "%s %s 1%s\r\n", one("incr", "decr"), k, noreply)
	case 11:
		return says(chaosWant{line: chaosTouch}, "touch %s 60%s\r\n", k, noreply)
	case 12:
		if c.rng.IntN(4) == 0 {
			k = "tag:n1"
		}
		return says(chaosWant{line: chaosDelete}, "delete %s%s\r\n", k, noreply)
	case 13, 14:
		return meta("mg", one(" v f t c", " v k", " v E1 T30", " v N10", ""), "")
	case 15:
		return meta("ms", one("", " MA", " ME", " MR", " I"), body+"\r\n")
	case 16:
		return meta("md", one("", " I T10", " C12"), "")
	case 17:
		k = c.counter(k)
		return meta("ma", one(" v", " MD", " v N10 J5"), "")
	case 18:
		noreply = ""
		return says(chaosWant{line: chaosME}, "me %s\r\n", k)
	}
	if noreply = ""; c.rng.IntN(10) > 0 {
		return says(chaosWant{line: chaosMN}, "mn\r\n")
	}
	return says(chaosWant{line: chaosOK}, "flush_all\r\n")
}

// lines sends a batch of the text and meta protocols, and checks the replies.
func (c *chaosClient) lines(conn net.Conn, in *bufio.Reader) error {
	var text strings.Builder
	for range 1 + c.rng.IntN(6) {
		text.WriteString(c.line())
	}
	c.wants = append(c.wants, chaosWant{text: "mn\r\n", line: chaosMN})
	text.WriteString("mn\r\n")
	if _, err := io.WriteString(conn, text.String()); err != nil {
		return err
	}
	var got strings.Builder
	for i := range c.wants {
		if err := c.reply(&c.wants[i], in, &got); err != nil {
			return fmt.Errorf("%w, reply number %d of %.3000q; all replies until then, without data: %q", err, i, text.String(), got.String())
		}
	}
	if in.Buffered() > 0 {
		return fmt.Errorf("%w: more than one reply to %.3000q", errChaos, text.String())
	}
	return nil
}

// reply reads the reply to w.
func (c *chaosClient) reply(w *chaosWant, in *bufio.Reader, got *strings.Builder) error {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		got.WriteString(line)
		words := strings.Fields(line)
		if len(words) == 0 {
			return fmt.Errorf("%w: an empty line for %.100q", errChaos, w.text)
		}
		word := words[0]
		key, size := "", -1
		switch {
		case word == "VALUE" && len(words) >= 4 && slices.Contains(w.keys, words[1]):
			key, size = words[1], 3
		case word == "VA" && len(words) >= 2 && w.value != "":
			key, size = w.value, 1
		case word == "SERVER_ERROR", word == "CLIENT_ERROR":
			return nil
		}
		if size < 0 {
			if !w.line.MatchString(strings.TrimRight(line, "\r\n")) || w.token != "" && !slices.Contains(words, w.token) {
				return fmt.Errorf("%w: %.200q for %.100q", errChaos, line, w.text)
			}
			return nil
		}
		n, err := strconv.Atoi(words[size])
		if err != nil {
			return fmt.Errorf("%w: %q: %w", errChaos, line, err)
		}
		value := make([]byte, n+2)
		if _, err := io.ReadFull(in, value); err != nil {
			return err
		}
		if !bytes.HasSuffix(value, []byte("\r\n")) {
			return fmt.Errorf("%w: %q ends the %d bytes of a value", errChaos, value[n:], n)
		}
		if err := c.judge(key, value[:n]); err != nil {
			return err
		}
		if w.value != "" {
			if !slices.Contains(words, w.token) {
				return fmt.Errorf("%w: %.200q for %.100q", errChaos, line, w.text)
			}
			return nil
		}
	}
}

// quiets sends quiet meta commands, and checks their replies: they are errors, or have the opaques in order.
func (c *chaosClient) quiets(conn net.Conn, in *bufio.Reader) error {
	var text strings.Builder
	for range 1 + c.rng.IntN(5) {
		k, kind := c.key(), c.rng.IntN(5)
		if kind >= 3 {
			k = c.counter(k)
		}
		c.opaque++
		w := chaosWant{token: fmt.Sprintf("O%d", c.opaque)}
		w.text = fmt.Sprintf([]string{"mg %s q v %s\r\n", "ms %s 1 q %s\r\n5\r\n", "md %s q %s\r\n", "ma %s q %s\r\n", "ma %s q v N10 %s\r\n"}[kind], k, w.token)
		if strings.HasPrefix(w.text, "ms") && !isCounter(k) {
			w.text = fmt.Sprintf("ms %s 4 q %s\r\n<%s>\r\n", k, w.token, k[len(k)-2:])
		}
		c.wants = append(c.wants, w)
		text.WriteString(w.text)
	}
	if _, err := io.WriteString(conn, text.String()+"mn\r\n"); err != nil {
		return err
	}
	left := c.wants
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		words := strings.Fields(line)
		wrong := fmt.Errorf("%w: %.200q for %q", errChaos, line, text.String())
		if len(words) == 0 {
			return wrong
		}
		if words[0] == "MN" {
			return nil
		}
		i := slices.IndexFunc(left, func(w chaosWant) bool { return slices.Contains(words, w.token) })
		if failed := words[0] == "SERVER_ERROR" || words[0] == "CLIENT_ERROR"; failed && len(left) > 0 {
			i = 0
		}
		if i < 0 {
			return wrong
		}
		switch command := left[i].text[:2]; {
		case words[0] == "VA" && len(words) > 1:
			n, _ := strconv.Atoi(words[1])
			if _, err := in.Discard(n + 2); err != nil {
				return err
			}
		case words[0] == "HD" && command != "mg", words[0] == "EN" && command == "mg":
			return wrong
		}
		left = left[i+1:]
	}
}

var errChaos = errors.New("not one reply to each command")

// frames sends a batch of the binary protocol, and checks the replies.
func (c *chaosClient) frames(conn net.Conn, in *bufio.Reader) error {
	var b []byte
	add := func(opcode byte, extras int, key, value string) {
		c.opaque++
		quiet := slices.Contains([]byte{0x09, 0x0d, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x18, 0x19, 0x1a, 0x1e, 0x24}, opcode)
		c.wants = append(c.wants, chaosWant{frame: c.opaque, opcode: opcode, quiet: quiet, value: key})
		b = append(b, 0x80, opcode, 0, byte(len(key)), byte(extras), 0, 0, 0)
		b = binary.BigEndian.AppendUint32(b, uint32(extras+len(key)+len(value)))
		b = binary.BigEndian.AppendUint32(b, c.opaque)
		b = append(b, make([]byte, 8+extras)...)
		b = append(append(b, key...), value...)
	}
	for range 1 + c.rng.IntN(8) {
		k, quiet := c.key(), c.rng.IntN(2)
		of := func(loud, silent byte) byte { return []byte{loud, silent}[quiet] }
		switch c.rng.IntN(14) {
		case 0, 1:
			add(of(0x00, 0x09), 0, k, "")
		case 2, 3:
			add(of(0x0c, 0x0d), 0, k, "")
		case 4:
			add(of(0x01, 0x11), 8, k, c.body(k))
		case 5:
			add(of(0x02, 0x12), 8, k, c.body(k))
		case 6:
			add(of(0x03, 0x13), 8, k, c.body(k))
		case 7:
			add(of(0x04, 0x14), 0, k, "")
		case 8:
			add(of(0x05, 0x15), 20, c.counter(k), "")
		case 9:
			add(of(0x06, 0x16), 20, c.counter(k), "")
		case 10:
			add(of(0x0e, 0x19), 0, k, c.body(k))
		case 11:
			add(of(0x0f, 0x1a), 0, k, c.body(k))
		case 12:
			add([]byte{0x1c, 0x1d, 0x1e, 0x23, 0x24}[c.rng.IntN(5)], 4, k, "")
		case 13:
			if c.rng.IntN(10) > 0 {
				add([]byte{0x0a, 0x0b}[quiet], 0, "", "") // noop, version
			} else {
				add(of(0x08, 0x18), 0, "", "")
			}
		}
	}
	add(0x0a, 0, "", "")
	if _, err := conn.Write(b); err != nil {
		return err
	}
	var head [24]byte
	for at := 0; at < len(c.wants); {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[8:]))
		if _, err := io.ReadFull(in, body); err != nil {
			return err
		}
		opaque, status := binary.BigEndian.Uint32(head[12:]), binary.BigEndian.Uint16(head[6:])
		for at < len(c.wants) && c.wants[at].quiet && c.wants[at].frame != opaque {
			at++
		}
		if at == len(c.wants) || c.wants[at].frame != opaque || c.wants[at].opcode != head[1] || head[0] != 0x81 {
			return fmt.Errorf("%w: frame %x comes, expected are %+v", errChaos, head, c.wants)
		}
		w := &c.wants[at]
		at++
		reads := slices.Contains([]byte{0x00, 0x09, 0x0c, 0x0d, 0x1d, 0x1e, 0x23, 0x24}, w.opcode)
		if w.quiet && (reads && status == 1 || !reads && status == 0) {
			return fmt.Errorf("%w: a frame of status %d as the reply to the quiet %+v", errChaos, status, w)
		}
		if reads && status == 0 {
			if err := c.judge(w.value, body[int(head[4])+int(binary.BigEndian.Uint16(head[2:])):]); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestReloadsOfAllFeatures reloads random files under traffic, in two instances that do so at different moments. Ringside must keep
// running, accept each file, and send exactly one reply to each command. Meanwhile a new process takes over from the first instance.
func TestReloadsOfAllFeatures(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		reloads := 15
		if testing.Short() {
			reloads = 5
		}
		if testenv.Full() {
			reloads = 60
		}
		c := startChaos(t, driver)
		c.startClients()
		for i := range reloads {
			c.round(i)
			if i == reloads/2 {
				c.takeOver()
			}
		}
		c.end()
	})
}

// chaos is a run of TestReloadsOfAllFeatures.
type chaos struct {
	t         *testing.T
	rng       *rand.Rand
	driver    string
	servers   []*memcached
	instances [2]*ringside
	names     *strings.Replacer // replaces the addresses of the first instance by those of the second one
	second    [2]string         // addresses of listeners that some of the files do not have
	third     [2]string
	dir       string
	base      tree
	settings  []chaosSetting
	sent      [2]atomic.Int64
	epoch     atomic.Int64 // it is odd while a process takes over
	clients   sync.WaitGroup
	stop      chan struct{}
	faults    chan error
	overrides int
}

func startChaos(t *testing.T, driver string) *chaos {
	c := &chaos{t: t, driver: driver, dir: chaosFiles(t), stop: make(chan struct{}), faults: make(chan error, 64)}
	seed := rand.Uint64()
	if s := os.Getenv("RINGSIDE_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("seed %d", seed)
	c.rng = rand.New(rand.NewPCG(seed, 8))
	c.servers = startMemcacheds(t, chaosServers-1)
	file := func(name string) string { return filepath.Join(c.dir, name) }
	c.servers = append(c.servers, startMemcached(t, "-Z", "-o", "ssl_chain_cert="+file("tls.crt")+",ssl_key="+file("tls.key"), "-Y", file("logins")))
	var addresses []string
	for _, s := range c.servers {
		addresses = append(addresses, s.address)
	}
	var names []string
	for i := range c.instances {
		c.instances[i] = startRingside(t, driver, front(c.servers[:3]))
		c.second[i], c.third[i] = freeAddress(t, ownHost()), file(fmt.Sprintf("s%d", i))
	}
	a, b := c.instances[0], c.instances[1]
	names = append(names, a.address, b.address, a.admin, b.admin, c.second[0], c.second[1], c.third[0], c.third[1], file("one"), file("one-b"), file("two"), file("two-b"))
	c.names = strings.NewReplacer(names...)
	c.base = chaosBase([]string{a.address, c.second[0], "unix:" + c.third[0]}, a.admin, addresses, c.dir)
	c.settings = chaosSettingsOf(c.dir)
	c.rng.Shuffle(len(c.settings), func(i, j int) { c.settings[i], c.settings[j] = c.settings[j], c.settings[i] })
	c.discover()
	return c
}

// discover gives the source of servers another list.
func (c *chaos) discover() {
	var list strings.Builder
	for i, s := range c.servers[:3] {
		if i < 2 || c.rng.IntN(2) == 0 { // a file may want two replicas
			list.WriteString(s.address + "\n")
		}
	}
	testenv.WriteFile(c.t, filepath.Join(c.dir, "source.new"), []byte(list.String()))
	if err := os.Rename(filepath.Join(c.dir, "source.new"), filepath.Join(c.dir, "source")); err != nil {
		c.t.Fatal(err)
	}
}

func (c *chaos) startClients() {
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "tls.crt"), filepath.Join(c.dir, "tls.key"))
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range 16 {
		at := i / 8
		p := &chaosClient{rng: rand.New(rand.NewPCG(uint64(i), 7)), sent: &c.sent[at]}
		address := c.instances[at].address
		switch i % 8 {
		case 2, 3, 6:
			address, p.logsIn = c.second[at], true
			if i%8 == 6 {
				p.tls = &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
			}
		case 5:
			address, p.logsIn = c.third[at], true
		}
		c.clients.Go(func() {
			for {
				select {
				case <-c.stop:
					return
				default:
				}
				epoch := c.epoch.Load()
				conn, err := dialError(address)
				if err == nil {
					err = p.play(conn, i%3 == 2, c.stop)
					conn.Close()
				}
				if err == nil {
					continue
				}
				replaced := at == 0 && (epoch%2 == 1 || epoch != c.epoch.Load()) // the old process may have closed the connection
				if errors.Is(err, errChaos) || address == c.instances[at].address && !replaced {
					c.faults <- fmt.Errorf("client %d at instance %d: %w", i, at, err)
					return
				}
				time.Sleep(10 * time.Millisecond) // until a reload adds the listener again
			}
		})
	}
}

func (c *chaos) check(text string) {
	select {
	case err := <-c.faults:
		c.t.Fatalf("%v\n%s", err, text)
	default:
	}
}

// round reloads both instances while servers fail or are drained.
func (c *chaos) round(i int) {
	t := c.t
	text := string(drawChaos(c.rng, c.base, c.settings, i%len(c.settings)))
	testenv.WriteFile(t, filepath.Join(c.dir, "users"), []byte([]string{"chaos", "chaos", "another"}[c.rng.IntN(3)]+":secret\n"))
	if c.rng.IntN(2) == 0 {
		c.discover()
	}
	var dead, paused *memcached
	switch c.rng.IntN(8) {
	case 0, 1:
		dead = c.servers[c.rng.IntN(len(c.servers))]
		dead.Kill()
	case 2, 3, 4: // its replies arrive after the reload
		paused = c.servers[c.rng.IntN(len(c.servers))]
		paused.pause(t)
	case 5:
		s := c.servers[c.rng.IntN(3)].address
		c.override(s, "drain")
		defer c.override(s, "restore")
	}
	texts := []string{text, c.names.Replace(text)}
	for n, at := range c.rng.Perm(2) {
		r := c.instances[at]
		before, asked := r.metric(t, reloadsDone), c.sent[at].Load()
		r.put(t, texts[at])
		r.signal(t, syscall.SIGHUP)
		eventually(t, "the reload is done:\n"+texts[at], func() bool {
			c.check(texts[at])
			if r.metric(t, reloadsFailed) > 0 {
				t.Fatalf("Ringside rejects the file:\n%s\n%s", texts[at], r.Output())
			}
			return r.metric(t, reloadsDone) > before
		})
		if n == 0 && paused != nil {
			paused.resume(t)
			paused = nil
		}
		eventually(t, "commands are answered:\n"+texts[at], func() bool {
			c.check(texts[at])
			return c.sent[at].Load() > asked+60
		})
	}
	if dead != nil {
		dead.restart(t)
	}
}

// override drains or restores a server at the first instance, if its present file has that server and allows it.
func (c *chaos) override(server, what string) {
	request, err := http.NewRequest("POST", "http://"+c.instances[0].admin+"/control/servers/"+server+"/"+what+"?pool=main", strings.NewReader(""))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Ringside-Control", "1")
	client := http.Client{Timeout: patience}
	answer, err := client.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	answer.Body.Close()
	switch {
	case answer.StatusCode/100 == 2:
		c.overrides++
	case answer.StatusCode/100 != 4 && answer.StatusCode != http.StatusServiceUnavailable: // a reload may just replace the keeper of the pool
		c.t.Errorf("%s: %s", what, answer.Status)
	}
}

// takeOver starts a new process in place of the first instance. That is not possible while the servers of a pool change.
func (c *chaos) takeOver() {
	t, old := c.t, c.instances[0]
	text := string(chaosText(c.base))
	before := old.metric(t, reloadsDone)
	old.put(t, text)
	old.signal(t, syscall.SIGHUP)
	old.reloaded(t, reloadsDone, before)
	c.epoch.Add(1)
	former := old.process
	for end := time.Now().Add(patience); ; {
		next := start(t, former.Cmd.Path, "serve", "--take-over", "-c", old.file)
		eventually(t, "a new process takes over", func() bool {
			c.check(text)
			return !next.Running() || strings.Contains(former.Output(), "take-over complete")
		})
		if next.Running() {
			t.Cleanup(func() {
				if sign := next.Crashed(); sign != "" {
					t.Errorf("ringside wrote %q:\n%s", sign, next.Output())
				}
			})
			old.process = next
			break
		}
		if out := next.Output(); !strings.Contains(out, "are changing") || time.Now().After(end) {
			t.Fatalf("the new process ends with %d: %s", next.wait(t), out)
		}
		time.Sleep(300 * time.Millisecond)
	}
	if code := former.wait(t); code != 0 {
		t.Errorf("the old process ends with %d: %s", code, former.Output())
	}
	c.epoch.Add(1)
}

func (c *chaos) end() {
	t := c.t
	close(c.stop)
	c.clients.Wait()
	c.check("at the end")
	t.Logf("%d and %d commands, %d overrides", c.sent[0].Load(), c.sent[1].Load(), c.overrides)
	for i, r := range c.instances {
		if n := r.metric(t, "ringside_reply_faults_total"); n != 0 || !r.Running() {
			t.Errorf("instance %d: %v reply faults; running: %v", i, n, r.Running())
		}
		r.signal(t, syscall.SIGTERM)
		if code := r.wait(t); code != 0 {
			t.Errorf("instance %d ends with %d", i, code)
		}
	}
}
