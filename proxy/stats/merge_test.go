package stats_test

// Tests of merging statistics: the input is recorded replies of real servers.

import (
	"bytes"
	"flag"
	"math"
	"os"
	"strings"
	"testing"

	"ringside/proxy/stats"
	"ringside/proxy/wire"
)

var update = flag.Bool("update", false, "write the golden files of TestMergeStats anew")

var lists = map[string]*stats.List{
	"general":   stats.General,
	"settings":  stats.Settings,
	"items":     stats.Items,
	"slabs":     stats.Slabs,
	"sizes":     stats.Sizes,
	"detail":    stats.Prefixes,
	"cachedump": stats.Cachedump(5),
}

// merge merges answers in one step.
func merge(l *stats.List, answers [][]byte, a stats.About) []byte {
	merged, _ := stats.NewMerge(l, answers, a).Step(nil, math.MaxInt)
	return merged
}

// TestMergeStats merges the replies of two memcached 1.6.18 and compares the result
// with golden files. Server a ran with defaults, b with -o
// track_sizes,idle_timeout=600,hashpower=17,ext_path=… -f 1.1 and more memory. The
// golden files were checked line by line when they were created.
func TestMergeStats(t *testing.T) {
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			var answers [][]byte
			for _, server := range []string{"a", "b"} {
				answers = append(answers, read(t, "testdata/stats-"+name+"-"+server+".txt"))
			}
			got := merge(list, answers, stats.About{Pid: 4711, Loops: 8, Asked: 3, Missing: 1})
			golden := "testdata/stats-" + name + "-golden.txt"
			if *update {
				if err := os.WriteFile(golden, got, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if want := read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("merged:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestMergeOfOne checks that the reply of a single server is returned unchanged, except
// for Ringside's own lines.
func TestMergeOfOne(t *testing.T) {
	for name, list := range lists {
		in := read(t, "testdata/stats-"+name+"-b.txt")
		got := merge(list, [][]byte{in}, stats.About{Pid: 1, Loops: 2, Asked: 1})
		if name == "general" {
			own := map[string]string{"pid": "1", "threads": "2"}
			var want []byte
			for line := range strings.Lines(string(in)) {
				if field, _, ok := stats.ParseStat([]byte(line)); ok && own[field] != "" {
					line = "STAT " + field + " " + own[field] + "\r\n"
				}
				want = append(want, line...)
			}
			in = append(bytes.TrimSuffix(want, wire.EndLine), "STAT ringside_servers 1\r\nSTAT ringside_servers_missing 0\r\nEND\r\n"...)
		}
		if !bytes.Equal(got, in) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, in)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRules(t *testing.T) {
	const omitted = "(omitted)"
	top := stats.Decimal(math.MaxUint64)
	for _, c := range []struct {
		list string // a key of lists
		name string
		in   []string // "-": the server has no such line
		want string
	}{
		{"general", "cmd_get", []string{"1", "2", "3"}, "6"},
		{"general", "cmd_get", []string{"1", "-", "3"}, "4"},
		{"general", "cmd_get", []string{top, "1"}, top},
		{"general", "cmd_get", []string{"1", "x"}, omitted},
		{"general", "cmd_get", []string{"-1", "-1"}, "-1"},
		{"general", "cmd_get", []string{"", ""}, ""},
		{"general", "limit_maxbytes", []string{"67108864", "67108864"}, "134217728"},
		{"general", "pid", []string{"17", "18"}, "4711"},
		{"general", "threads", []string{"4", "4"}, "2"},
		{"general", "uptime", []string{"30", "20"}, "20"},
		{"general", "time", []string{"1700000001", "1700000000"}, "1700000000"},
		{"general", "version", []string{"1.6.18", "1.6.9", "1.6.40"}, "1.6.9"},
		{"general", "version", []string{"1.6.18", "1.4.25 Ubuntu"}, "1.4.25 Ubuntu"},
		{"general", "version", []string{"none", "1.6.18"}, "1.6.18"},
		{"general", "version", []string{"none", "nil"}, omitted},
		{"general", "libevent", []string{"2.1.12-stable", "2.1.12-stable"}, "2.1.12-stable"},
		{"general", "libevent", []string{"2.1.12-stable", "2.0"}, "mixed"},
		{"general", "pointer_size", []string{"64", "32"}, "32"},
		{"general", "rusage_user", []string{"0.000001", "12.999999"}, "13.000000"},
		{"general", "accepting_conns", []string{"1", "0"}, "0"},
		{"general", "hash_power_level", []string{"16", "16"}, "17"},
		{"general", "hash_power_level", []string{"16", "17"}, "17"},
		{"general", "hash_power_level", []string{"99", "16"}, "63"},
		{"general", "hash_is_expanding", []string{"0", "1", "1"}, "1"},
		{"general", "lru_crawler_running", []string{"0", "0"}, "0"},
		{"general", "extstore_memory_pressure", []string{"10.50", "2.00"}, "10.50"}, // since 1.6.19
		{"general", "slab_reassign_last_busy_status", []string{"a b", "a b"}, "a b"},
		{"general", "slab_reassign_last_busy_status", []string{"a", "b"}, omitted},
		{"settings", "maxbytes", []string{"1", "1"}, "1"},
		{"settings", "maxbytes", []string{"1", "2"}, "mixed"},
		{"settings", "ssl_key", []string{"(null)", "-"}, "mixed"},
		{"items", "items:5:number", []string{"1", "2"}, "3"},
		{"items", "items:5:age", []string{"70", "900"}, "900"},
		{"items", "items:5:evicted_time", []string{"70", "0", "60"}, "60"},
		{"items", "items:5:evicted_time", []string{"0", "0"}, "0"},
		{"slabs", "5:chunk_size", []string{"240", "240", "-"}, "240"},
		{"slabs", "5:chunk_size", []string{"240", "280"}, "mixed"},
		{"slabs", "5:used_chunks", []string{"240", "280"}, "520"},
		{"slabs", "active_slabs", []string{"12", "4"}, "0"}, // counts classes, and there is none in this reply
		{"slabs", "total_malloced", []string{"1048576", "1"}, "1048577"},
		{"sizes", "96", []string{"3", "4"}, "7"},
		{"sizes", "sizes_status", []string{"disabled", "disabled"}, "disabled"},
		{"sizes", "sizes_status", []string{"disabled", "-"}, "mixed"},
	} {
		var answers [][]byte
		for _, v := range c.in {
			if v == "-" {
				answers = append(answers, wire.EndLine)
			} else {
				answers = append(answers, []byte("STAT "+c.name+" "+v+"\r\nEND\r\n"))
			}
		}
		merged := merge(lists[c.list], answers, stats.About{Pid: 4711, Loops: 2, Asked: 2})
		got := omitted
		for line := range bytes.Lines(merged) {
			if name, value, ok := stats.ParseStat(line); ok && name == c.name {
				got = value
			}
		}
		if got != c.want {
			t.Errorf("%s of %q in stats %s: %q, want %q", c.name, c.in, c.list, got, c.want)
		}
	}
}

// TestMergeOrder checks that a name which only later servers send keeps its position,
// and that classes are sorted whatever server they came from.
func TestMergeOrder(t *testing.T) {
	for _, c := range []struct {
		list string
		in   []string
		want string
	}{
		{"settings", []string{"a b e", "a c e f", "d b"}, "d a c b e f"},
		{"sizes", []string{"96 128 1024", "64 128 992 sizes_status"}, "64 96 128 992 1024 sizes_status"},
		{"items", []string{"items:2:number items:10:number", "items:1:number items:3:number items:3:age"},
			"items:1:number items:2:number items:3:number items:3:age items:10:number"},
	} {
		var answers [][]byte
		for _, names := range c.in {
			var b []byte
			for _, name := range strings.Fields(names) {
				b = stats.AppendStat(b, name, "1")
			}
			answers = append(answers, append(b, wire.EndLine...))
		}
		var got []string
		for line := range bytes.Lines(merge(lists[c.list], answers, stats.About{})) {
			if name, _, ok := stats.ParseStat(line); ok {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

// FuzzMergeStats checks that the merged reply consists of lines that a client can
// parse, and ends with END. Its input is any lines that package wire accepts.
func FuzzMergeStats(f *testing.F) {
	for name := range lists {
		a, err := os.ReadFile("testdata/stats-" + name + "-a.txt")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a[:min(len(a), 400)], []byte("STAT 5:chunk_size mixed\r\nSTAT version \r\nSTAT  x\r\nSTAT rusage_user NaN\r\nPREFIX a get 1 hit 1 set 1 del -1\r\nEND\r\n"))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		answers := [][]byte{append(a[:len(a):len(a)], "\r\nEND\r\n"...), append(b[:len(b):len(b)], "\r\nEND\r\n"...)}
		for name, list := range lists {
			got := string(merge(list, answers, stats.About{}))
			if !strings.HasSuffix("\n"+got, "\nEND\r\n") {
				t.Fatalf("%s: no end: %q", name, got)
			}
			for line := range strings.Lines(strings.TrimSuffix(got, "END\r\n")) {
				switch word, _, _ := strings.Cut(line, " "); {
				case !strings.HasSuffix(line, "\n"), word != "STAT" && word != "ITEM" && word != "PREFIX":
					t.Fatalf("%s: line %q", name, line)
				}
			}
		}
	})
}

// TestMergeSteps checks that a step handles a bounded number of lines, that steps of any size have the same
// result, and that the memory of names and values counts.
func TestMergeSteps(t *testing.T) {
	for name, list := range lists {
		answers := [][]byte{read(t, "testdata/stats-"+name+"-a.txt"), read(t, "testdata/stats-"+name+"-b.txt"), read(t, "testdata/stats-"+name+"-a.txt")}
		want := merge(list, answers, stats.About{})
		size := len(bytes.Join(answers, nil))
		for _, n := range []int{1, 2, 7, 50} {
			m := stats.NewMerge(list, answers, stats.About{})
			var got []byte
			for done := false; !done; {
				before := bytes.Count(got, []byte("\n"))
				held := m.Held()
				got, done = m.Step(got, n)
				if lines := bytes.Count(got, []byte("\n")) - before; lines > n+3 { // the last step also writes END and the lines of Ringside
					t.Fatalf("%s: a step of %d wrote %d lines", name, n, lines)
				}
				if grown := m.Held() - held; grown > n*2500 {
					t.Fatalf("%s: a step of %d has allocated %d bytes", name, n, grown)
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s in steps of %d:\n%s\nwant:\n%s", name, n, got, want)
			}
			if copied := name == "cachedump"; copied != (m.Held() == 0) || !copied && m.Held() < size-len("END\r\n")*len(answers) {
				t.Errorf("%s: %d bytes held for replies of %d bytes", name, m.Held(), size)
			}
		}
	}
}
