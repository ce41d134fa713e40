package serverlist

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// servers reads servers from a text such as "a b=1.2.3.4:5 c*2". The address of a server is its name
// unless the text has another one.
func servers(text string) (list []Server) {
	for word := range strings.FieldsSeq(text) {
		s := Server{Weight: 1}
		if name, weight, ok := strings.Cut(word, "*"); ok {
			word = name
			fmt.Sscan(weight, &s.Weight)
		}
		s.Name, s.Address, _ = strings.Cut(word, "=")
		if s.Address == "" {
			s.Address = s.Name
		}
		list = append(list, s)
	}
	return list
}

func textOf(list []Server) string {
	var words []string
	for _, s := range list {
		word := s.Name
		if s.Address != s.Name {
			word += "=" + s.Address
		}
		if s.Weight > 1 {
			word += fmt.Sprint("*", s.Weight)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestList plays answers, one every 10 s, with keep: 60s and max_change: 50%. Each step has the answer,
// the list in force after it, and the state. An answer "!" is a failed lookup, and "accept" accepts the
// answer that is held.
func TestList(t *testing.T) {
	for _, c := range []struct {
		what  string
		steps string
	}{
		{"the first answer counts", "m2 m10 m1 > m1 m2 m10, ok"},
		{"a failure before the first answer", "! > , failing; > , failing; a > a, ok"},
		{"nothing changes while the source fails", "a b > a b, ok; ! > a b, failing; > a b, failing; a b > a b, ok"},
		{"a new server", "a b > a b, ok; a b c > a b c, ok"},
		{"another address is the same server", "a=1 b=2 > a=1 b=2, ok; a=9 b=8 > a=9 b=8, ok"},
		{"a server that is gone stays for 60 s", "a b > a b, ok" + strings.Repeat("; a > a b, ok", 6) + "; a > a, ok"},
		{"a pod restarts with another address", "a=1 b=2 > a=1 b=2, ok; a=1 > a=1 b=2, ok; a=1 b=3 > a=1 b=3, ok" + strings.Repeat("; a=1 b=3 > a=1 b=3, ok", 7)},
		{"the time begins again after a return", "a b > a b, ok; a > a b, ok; a > a b, ok; a b > a b, ok" + strings.Repeat("; a > a b, ok", 6) + "; a > a, ok"},
		{"failures do not remove a server", "a b > a b, ok; a > a b, ok" + strings.Repeat("; ! > a b, failing", 20) + "; a b > a b, ok"},
		{"too many new servers are held", "a b > a b, ok; a b c d > a b, held; a b c > a b c, ok"},
		{"too few servers are held", "a b c d > a b c d, ok; a > a b c d, held; a b > a b c d, ok"},
		{"one server may always change", "a > a, ok; b > a b, ok"},
		{"a held answer changes addresses", "a=1 b=2 c=3 d=4 > a=1 b=2 c=3 d=4, ok; a=5 > a=5 b=2 c=3 d=4, held"},
		{"a held answer changes no weight", "a b c > a b c, ok; a*2 b*2 c > a b c, held"},
		{"weights count", "a b c d > a b c d, ok; a*2 b*2 c d > a*2 b*2 c d, ok; a b*3 c*3 d > a*2 b*2 c d, held; a b*2 c d > a b*2 c d, ok"},
		{"a source that loses one after the other is held", "a b c d > a b c d, ok; a b c > a b c d, ok; a b > a b c d, ok; a > a b c d, held" +
			strings.Repeat("; a > a b c d, held", 3) + "; a > a b c, held; a > a b, held; a > a, ok"},
		{"an accepted answer", "a b c d > a b c d, ok; a e > a b c d, held; accept > a b c d e, ok; a e > a b c d e, ok" + strings.Repeat("; a e > a b c d e, ok", 3) + "; a e > a e, ok"},
		{"an accepted answer that was held for long", "a b c d > a b c d, ok" + strings.Repeat("; a > a b c d, held", 10) + "; accept > a, ok"},
		{"nothing to accept", "a b > a b, ok; accept > a b, ok"},
		{"the largest weight", "a b*1000000 > a b*1000000, ok; a b*1000001 > a b*1000000, failing; a b*9223372036854775807 > a b*1000000, failing"},
		{"an answer with a server twice", "a b > a b, ok; a a=2 > a b, failing; a a b > a b, ok"},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, o, now := &List{}, Settings{time.Minute, 50}, time.Unix(1000, 0)
			for step := range strings.SplitSeq(c.steps, ";") {
				answer, want, _ := strings.Cut(step, ">")
				before := textOf(l.servers)
				changed := false
				switch answer = strings.TrimSpace(answer); answer {
				case "!":
					l.Fail(errors.New("server misbehaving"))
				case "accept":
					l.Accept(now, o)
					changed = before != textOf(l.servers)
				default:
					changed, _ = l.Answer(now, servers(answer), o)
				}
				if is := textOf(l.servers) + ", " + l.State.String(); is != strings.TrimSpace(want) {
					t.Fatalf("%q after %q: %s, want %s (%s)", answer, before, is, want, l.Problem)
				}
				if changed != (before != textOf(l.servers)) {
					t.Fatalf("%q: changed is %v, from %q to %q", answer, changed, before, textOf(l.servers))
				}
				now = now.Add(10 * time.Second)
			}
		})
	}
}

// TestWarnings checks that each problem is reported once, until it ends.
func TestWarnings(t *testing.T) {
	l, o, now := &List{}, Settings{time.Minute, 50}, time.Unix(1000, 0)
	for i, step := range []struct{ answer, warn string }{
		{"a b c d", ""},
		{"!", "server misbehaving"},
		{"!", ""},
		{"", ""},
		{"a b c d", ""},
		{"", "it has no servers"},
		{"a", "it would remove 3 of 4 servers; max_change allows 2. ringside reload --accept accepts it"},
		{"b", ""},
		{"a b c d", ""},
		{"a*2 b*2 c d e f", "it would add 2 and change the weight of 2 of 4 servers; max_change allows 2. ringside reload --accept accepts it"},
		{"!", "server misbehaving"},
		{"a a=2", ""},
	} {
		warn := ""
		if step.answer == "!" {
			warn = l.Fail(errors.New("server misbehaving"))
		} else {
			_, warn = l.Answer(now, servers(step.answer), o)
		}
		if warn != step.warn {
			t.Errorf("step %d, %q: warning %q, want %q", i, step.answer, warn, step.warn)
		}
		if (l.Problem == "") != (l.State == Sound) {
			t.Errorf("step %d: state %v with problem %q", i, l.State, l.Problem)
		}
	}
	if l.Problem != "it has the server a twice, at a and at 2" {
		t.Errorf("problem %q", l.Problem)
	}
}

// TestUnusableText checks that names and addresses are readable, and that a problem is short.
func TestUnusableText(t *testing.T) {
	for name, want := range map[string]State{"a": Sound, "é": Sound, "a\u202eb": Failing, "a\u200b": Failing, "a b": Failing, "a\x1b": Failing, "a\xff": Failing, "": Failing, strings.Repeat("a", 301): Failing} {
		for _, s := range []Server{{Name: name, Address: "a"}, {Name: "a", Address: name}} {
			l := &List{}
			if l.Answer(time.Unix(1, 0), []Server{s}, Settings{}); l.State != want || len(l.Problem) > 200 {
				t.Errorf("%+q: %v, %s", name, l.State, l.Problem)
			}
		}
	}
	l := &List{}
	if warn := l.Fail(errors.New(strings.Repeat("x", 1<<20))); len(warn) != mostProblem || l.Problem != warn {
		t.Errorf("a problem with %d bytes", len(warn))
	}
}

func TestManyServers(t *testing.T) {
	l := &List{}
	var list []Server
	for i := range MostServers + 1 {
		list = append(list, Server{Name: fmt.Sprint("mc-", i), Address: "x", Weight: 1})
	}
	if l.Answer(time.Unix(1, 0), list, Settings{}); l.State != Failing {
		t.Errorf("%d servers: %v", len(list), l.State)
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	l.Answer(time.Unix(1, 0), list[1:], Settings{})
	is, known := l.Servers()
	if !known || len(is) != MostServers || !slices.IsSortedFunc(is, func(a, b Server) int {
		var x, y int
		fmt.Sscanf(a.Name, "mc-%d", &x)
		fmt.Sscanf(b.Name, "mc-%d", &y)
		return x - y
	}) {
		t.Errorf("%d servers, not in the order of their numbers", len(is))
	}
}

// TestMostServers checks that a source that has other servers each time never has more than MostServers
// in force. Its present servers are all in force, and those that were left out first are removed first.
func TestMostServers(t *testing.T) {
	l, o, now := &List{}, Settings{time.Hour, 100}, time.Unix(1, 0)
	removed := 0
	for round := range 5 {
		var answer []Server
		for i := range 400 {
			answer = append(answer, Server{Name: fmt.Sprintf("mc-%d-%d", round, i), Address: "x", Weight: 1})
		}
		now = now.Add(time.Second)
		changed, warn := l.Answer(now, answer, o)
		is := byName(l.servers)
		if !changed || warn != "" || len(is) > MostServers || len(is) != min(400*(round+1), MostServers) {
			t.Fatalf("round %d: %d servers are in force, changed %v, %q", round, len(is), changed, warn)
		}
		for _, s := range answer {
			if _, ok := is[s.Name]; !ok {
				t.Fatalf("round %d: %s is missing", round, s.Name)
			}
		}
		for name := range l.gone {
			if _, ok := is[name]; !ok {
				t.Fatalf("round %d: %s is gone", round, name)
			}
		}
		if removed += l.Early; removed+len(is) != 400*(round+1) {
			t.Fatalf("round %d: %d servers were removed", round, removed)
		}
		l.Early = 0
	}
	if _, ok := byName(l.servers)["mc-2-199"]; ok {
		t.Error("the servers that were left out first are still in force")
	}
	if _, ok := byName(l.servers)["mc-2-200"]; !ok {
		t.Error("servers that were left out later were removed")
	}
}

// TestListAlways plays random answers and failures, and checks the rules of the package after each.
func TestListAlways(t *testing.T) {
	names := strings.Fields("a b c d e f g h")
	rapid.Check(t, func(t *rapid.T) {
		o := Settings{time.Duration(rapid.IntRange(0, 90).Draw(t, "keep")) * time.Second, float64(rapid.SampledFrom([]int{0, 10, 50, 100}).Draw(t, "max_change"))}
		l, now := &List{}, time.Unix(1000, 0)
		missing := map[string]time.Time{} // since when each server in force is missing in all usable answers
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "wait")) * time.Second)
			before := slices.Clone(l.servers)
			was := byName(before)
			var answer []Server
			accept := false
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				l.Fail(errors.New("timeout"))
			case 1:
				accept = l.held != nil
				answer = l.held
				l.Accept(now, o)
			default:
				for _, n := range names {
					if rapid.IntRange(0, 3).Draw(t, n) > 0 {
						answer = append(answer, Server{Name: n, Address: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "address"), Weight: rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "weight")})
					}
				}
				if rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
					answer = nil
				}
				l.Answer(now, answer, o)
			}
			is, in := byName(l.servers), byName(answer)
			if len(answer) == 0 && !slices.Equal(before, l.servers) {
				t.Fatalf("a failure changed the list from %s to %s", textOf(before), textOf(l.servers))
			}
			if len(before) > 0 && len(l.servers) == 0 {
				t.Fatalf("the list is empty")
			}
			if len(answer) > 0 {
				for _, s := range before {
					if _, ok := in[s.Name]; ok {
						delete(missing, s.Name)
					} else if _, ok := missing[s.Name]; !ok {
						missing[s.Name] = now
					}
				}
			}
			added := 0
			for _, s := range l.servers {
				if _, ok := was[s.Name]; !ok {
					added++
				}
				if a, ok := in[s.Name]; ok && a.Address != s.Address {
					t.Fatalf("%s is at %s, not at %s", s.Name, s.Address, a.Address)
				}
				if _, ok := in[s.Name]; len(answer) > 0 && !ok && l.State == Sound && !l.gone[s.Name].Allowed {
					t.Fatalf("%s will never be removed", s.Name)
				}
			}
			for _, s := range before {
				if _, ok := is[s.Name]; !ok && now.Sub(missing[s.Name]) < o.Keep {
					t.Fatalf("%s was removed after %v", s.Name, now.Sub(missing[s.Name]))
				}
			}
			if most := max(1, int(float64(len(before))*o.MaxChange/100)); len(before) > 0 && !accept && o.MaxChange < 100 && added > most {
				t.Fatalf("%d servers were added to %d", added, len(before))
			}
			if l.State == Sound && len(answer) > 0 {
				for _, s := range answer {
					if _, ok := is[s.Name]; !ok {
						t.Fatalf("%s is missing", s.Name)
					}
				}
			}
			if l.State == Held && is != nil && l.held == nil {
				t.Fatal("nothing is held")
			}
		}
	})
}

// TestRevert puts earlier servers in force in place of those of an answer that is held. A server that had
// been removed is removed again when the operator accepts the answer.
func TestRevert(t *testing.T) {
	l, o, now := &List{}, Settings{time.Minute, 100}, time.Unix(1000, 0)
	l.Answer(now, servers("a b c"), o)
	before, _ := l.Servers()
	l.Answer(now, servers("a b d"), o)
	l.Answer(now.Add(time.Minute), servers("a d"), o)
	l.Revert(before, errors.New("too many keys move"), true)
	added, removed := l.Held()
	if is := textOf(l.servers); is != "a b c" || l.State != Held || l.Problem != "too many keys move" || added != 1 || removed != 2 {
		t.Errorf("%s, %v, %s, %d added, %d removed", is, l.State, l.Problem, added, removed)
	}
	if next := l.Next(o); !next.Equal(now.Add(2 * time.Minute)) { // for b; c does not cause lookups
		t.Error(next)
	}
	l.Accept(now.Add(90*time.Second), o)
	if is := textOf(l.servers); is != "a b d" || l.State != Sound {
		t.Error(is, l.State)
	}
	l.Revert(before, errors.New("they do not fit"), false)
	if is := textOf(l.servers); is != "a b c" || l.State != Failing || l.Accept(now, o) {
		t.Error(is, l.State)
	}
}

func TestNext(t *testing.T) {
	l, o, now := &List{}, Settings{time.Minute, 50}, time.Unix(1000, 0)
	l.Answer(now, servers("a b c d e f"), o)
	if !l.Next(o).IsZero() {
		t.Error("a lookup is due although nothing is missing")
	}
	l.Answer(now.Add(time.Second), servers("a b c d e"), o)
	l.Answer(now.Add(2*time.Second), servers("a b c d"), o)
	if next := l.Next(o); !next.Equal(now.Add(61 * time.Second)) {
		t.Errorf("next lookup %v", next)
	}
}

func TestHeld(t *testing.T) {
	l, o, now := &List{}, Settings{time.Minute, 50}, time.Unix(1000, 0)
	l.Answer(now, servers("a b c d"), o)
	l.Answer(now, servers("a e"), o)
	if added, removed := l.Held(); added != 1 || removed != 3 {
		t.Errorf("it would add %d and remove %d", added, removed)
	}
	if l.Accept(now, o); l.State != Sound {
		t.Error(l.Problem)
	}
	if added, removed := l.Held(); added != 0 || removed != 0 {
		t.Errorf("after it was accepted: %d, %d", added, removed)
	}
}

func TestVersion(t *testing.T) {
	v, now := Version{}, time.Unix(1000, 0)
	for i, step := range []struct {
		number uint64
		ok     bool
	}{
		{5, true}, {5, true}, {6, true}, {5, false}, {6, true}, {5, false}, {5, false}, {4, false}, {5, false}, // 5 was not repeated without a break
		{5, false}, {5, false}, {5, false}, {5, false}, {5, false}, {5, true}, {6, true},
	} {
		if err := v.Take(now, step.number, time.Minute); (err == nil) != step.ok {
			t.Errorf("step %d: version %d: %v", i, step.number, err)
		}
		now = now.Add(10 * time.Second)
	}
}

func TestParseSource(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"dns+mc.example.com:11211", "dns mc.example.com 11211"},
		{"dnssrv+_memcached._tcp.mc.prod.svc.cluster.local", "dnssrv _memcached._tcp.mc.prod.svc.cluster.local"},
		{"dnssrvnoa+_memcached._tcp.mc.prod.svc.cluster.local.", "dnssrvnoa _memcached._tcp.mc.prod.svc.cluster.local."},
		{"elasticache+x.cfg.use1.cache.amazonaws.com:11211", "elasticache x.cfg.use1.cache.amazonaws.com 11211"},
		{"elasticache+127.0.0.1:11211", "elasticache 127.0.0.1 11211"},
		{"file+/etc/ringside/servers", "file /etc/ringside/servers"},
		{"k8s+prod/mc:memcached", "k8s memcached prod mc"},
		{"k8s+prod/mc:11211", "k8s 11211 prod mc"},
		{"dns+mc.example.com", "error: the port is missing"},
		{"dns+mc.example.com:", "error: a port is a number"},
		{"dns+mc.example.com:011", "error: a port is a number"},
		{"dns+:11211", "error: there is no host name"},
		{"dns+10.0.0.1:11211", "error: an address is not looked up"},
		{"dns+[::1]:11211", "error: an address is not looked up"},
		{"dns+::1:11211", "error: an address is not looked up"},
		{"dns+tcp://x:1", "error: the name has no scheme of its own"},
		{"dnssrv+_memcached._tcp.mc:11211", "error: the port is that of the SRV records"},
		{"dnssrvnoa+x:", "error: the port is that of the SRV records"},
		{"dnssrv+", "error: there is no host name"},
		{"elasticache+x", "error: the port is missing"},
		{"file+servers", "error: the path does not begin with /"},
		{"k8s+mc:11211", "error: the namespace and the service"},
		{"k8s+prod/mc", "error: the port is a number or the name"},
		{"k8s+prod/mc:0", "error: the port is a number or the name"},
		{"k8s+prod/mc:a/b", "error: the port is a number or the name"},
		{"k8s+../mc:1", "error: the namespace and the service"},
		{"srv+x", "error: is not a source of servers"},
		{"10.0.0.1:11211", "error: is not a source of servers"},
	} {
		s, err := ParseSource(c.text)
		is := strings.Join(strings.Fields(strings.Join([]string{s.Scheme, s.Host, s.Port, s.Namespace, s.Service, s.Path}, " ")), " ")
		want, fails := strings.CutPrefix(c.want, "error: ")
		if fails && (err == nil || !strings.Contains(err.Error(), want)) || !fails && (err != nil || is != want) {
			t.Errorf("%s: %s, %v; want %s", c.text, is, err, c.want)
		}
	}
	for text, is := range map[string]bool{"dns+x:1": true, "nosuch+x": true, "unix:/a+b": false, "host:11211": false, "+x": false, "[::1]:1": false} {
		if IsSource(text) != is {
			t.Errorf("%s is a source: %v", text, !is)
		}
	}
}
