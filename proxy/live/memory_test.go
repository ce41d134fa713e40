package live

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// answersOf returns the stats of a server with two classes: small items, which it
// evicts, and large items, whose class has spare free chunks.
func answersOf(evicted, unread, spare int) [][]byte {
	return [][]byte{
		[]byte("STAT pid 1\r\nSTAT uptime 100\r\nSTAT version 1.6.18\r\nSTAT bytes 5000\r\nSTAT limit_maxbytes 25165824\r\nSTAT curr_items 30\r\n" +
			fmt.Sprintf("STAT evictions %d\r\nSTAT evicted_unfetched %d\r\nSTAT get_hits %d\r\nSTAT get_misses 25\r\nEND\r\n", evicted, unread, 3*evicted)),
		[]byte("STAT 5:chunk_size 240\r\nSTAT 5:chunks_per_page 4369\r\nSTAT 5:total_pages 2\r\nSTAT 5:used_chunks 8738\r\nSTAT 5:free_chunks 0\r\n" +
			fmt.Sprintf("STAT 30:chunk_size 65536\r\nSTAT 30:chunks_per_page 16\r\nSTAT 30:total_pages 8\r\nSTAT 30:used_chunks 8\r\nSTAT 30:free_chunks %d\r\n", spare) +
			"STAT active_slabs 2\r\nSTAT total_malloced 10485760\r\nEND\r\n"),
		[]byte(fmt.Sprintf("STAT items:5:number 8738\r\nSTAT items:5:age 77\r\nSTAT items:5:mem_requested 1800000\r\nSTAT items:5:evicted %d\r\nSTAT items:5:evicted_unfetched %d\r\n", evicted, unread) +
			"STAT items:30:number 8\r\nSTAT items:30:mem_requested 400000\r\nSTAT items:999:number 1\r\nSTAT items:30:age nan\r\nEND\r\n"),
	}
}

func TestMemory(t *testing.T) {
	start := time.Unix(1000, 0)
	first := parseStats(answersOf(100, 10, 120), start)
	then := parseStats(answersOf(150, 30, 120), start.Add(5*time.Second))
	then.rates(first)
	if len(then.Classes) != 2 || then.Classes[0].Evicted != 10 || then.Classes[0].Unread != 4 || then.Classes[1].Asked != 400_000 {
		t.Fatalf("read as %+v", then)
	}
	m, err := json.Marshal(memory([]*Said{then, nil}, []*Said{first, nil}))
	want := `{"used":[5000,null],"held":[10485760,null],"limit":[25165824,null],"items":[30,null],"ev":[10,null],"unf":[4,null],"hit":[1,null]}`
	if err != nil || string(m) != want {
		t.Errorf("told as %s %v\nwant %s", m, err, want)
	}
	s := slabs([]string{"a", "b"}, []*Said{then, nil})
	b, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(b), `"servers":[[[240,2,4369,8738,0,1800000,8738,77,10,4],[65536,8,16,8,120,400000,8,0,0,0]],null]`) {
		t.Errorf("told as %s %v", b, err)
	}
	text := "evicts 10 items/s, most of up to 240 B (40 % of all were never read), while 7.0 MiB stand empty for items of up to 64.0 KiB. To let pages move:"
	if len(s.Warnings) != 1 || s.Warnings[0].Server != "a" || s.Warnings[0].Text != text || s.Warnings[0].Command != "slabs automove 1" {
		t.Errorf("warns %+v", s.Warnings)
	}

	// Without spare memory; and a restarted server has no rates.
	then = parseStats(answersOf(150, 12, 0), start.Add(5*time.Second))
	then.rates(first)
	if w := warn("a", then); w == nil || w.Text != "evicts 10 items/s and no class has memory to spare: it needs more memory for these items." {
		t.Errorf("warns %+v", w)
	}
	first.Uptime = 1000
	then = parseStats(answersOf(150, 12, 120), start.Add(5*time.Second))
	then.rates(first)
	if w := warn("a", then); w != nil {
		t.Errorf("warns %+v of a server that was started anew", w)
	}
}

// TestSlabsOfMany checks that only the worst of many servers are included, and that the
// sum covers all.
func TestSlabsOfMany(t *testing.T) {
	var names []string
	var now []*Said
	for i := range 200 {
		before := parseStats(answersOf(0, 0, 120), time.Unix(1000, 0))
		s := parseStats(answersOf(100*(i%40), 0, 120), time.Unix(1010, 0))
		s.rates(before)
		names, now = append(names, fmt.Sprint("s", i)), append(now, s)
	}
	s := slabs(names, now)
	named := 0
	for i, c := range s.Servers {
		if c != nil {
			named++
			if i%40 < 37 {
				t.Errorf("s%d is named, which is not among the worst", i)
			}
		}
	}
	if named != mostListed || s.Of != 200 || s.Sum[0].Items != 200*8738 || len(s.Warnings) != 3 {
		t.Errorf("%d are named of %d, %v items, %d warnings", named, s.Of, s.Sum[0].Items, len(s.Warnings))
	}
}

func TestEvents(t *testing.T) {
	var ev Events
	var out strings.Builder
	log := slog.New(ev.Tee(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))).With("pool", "main")
	log.Debug("nothing")
	log.Info("server up", "server", "a\x00<b>", "failed", 3)
	log.Warn("server down", "why", strings.Repeat("x", 1000))
	list := ev.Last()
	if len(list) != 2 || strings.Contains(out.String(), "server up") || !strings.Contains(out.String(), "server down") {
		t.Fatalf("kept %s, logged %s", list, out.String())
	}
	var is map[string]any
	if err := json.Unmarshal(list[0], &is); err != nil || is["server"] != "a\x00<b>" || is["failed"] != 3.0 || is["pool"] != "main" || is["level"] != "INFO" {
		t.Errorf("kept %v %v", is, err)
	}
	if len(list[1]) > 1000 { // its text, and the same text as a description
		t.Errorf("an event of %d bytes", len(list[1]))
	}
	for range 1000 {
		log.Info("again")
	}
	if n := len(ev.Last()); n != mostEvents {
		t.Errorf("%d are kept", n)
	}
}
