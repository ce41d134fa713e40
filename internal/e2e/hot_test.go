package e2e

// This file tests the list of the most requested keys, on the page, in ringside top and
// in the metrics.

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/proxy/admin"
	"ringside/proxy/live"
)

// TestHotKeys requests one key more often than others, and one key with malicious bytes.
func TestHotKeys(t *testing.T) {
	t.Parallel()
	servers := []*memcached{startMemcached(t, "-m", "16"), startMemcached(t, "-m", "16"), startMemcached(t, "-m", "16")}
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.address)
	}
	r := startRingside(t, "auto", pageFront(addresses...))
	const harm = "q:\xff<b>\u202e" // markup, invalid UTF-8, and a character that reverses text direction
	hotLoad(t, r.address, "home:top", harm)

	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var is struct {
		Servers []struct{ Name string }
		Hot     struct {
			Rps  float64
			Keys []struct {
				Key    string
				Rps    float64
				Share  float64
				Hit    *float64
				Server *int
			}
		}
	}
	ask := func() {
		text, _ := r.top(t, "--json", "--for", "500ms")
		if err := json.Unmarshal([]byte(text), &is); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "home:top is known to be the hottest key, with half of the requests", func() bool {
		ask()
		if len(is.Hot.Keys) <= 10 || is.Hot.Keys[0].Hit == nil {
			return false
		}
		first := is.Hot.Keys[0]
		key, _ := base64.StdEncoding.DecodeString(first.Key)
		return *first.Hit > .9 && string(key) == "home:top" && math.Abs(first.Share-.5) <= .1
	})
	first := is.Hot.Keys[0]
	var route struct{ Owner string }
	if err := json.Unmarshal([]byte(tool(t, binary, "route", "-c", r.file, "--json", "home:top")), &route); err != nil {
		t.Fatal(err)
	}
	if first.Server == nil || is.Servers[*first.Server].Name != route.Owner {
		t.Errorf("home:top is said to be at server %v of %+v; ringside route says %s", first.Server, is.Servers, route.Owner)
	}
	eventually(t, "the terminal shows both keys", func() bool {
		screen, _ := r.top(t, "--for", "500ms")
		return strings.Contains(screen, "home:top") && strings.Contains(screen, `q:\xff<b>\xe2\x80\xae`)
	})
	_, metrics := r.page(t, "/metrics")
	if !strings.Contains(metrics, `ringside_hot_key_ratio{rank="1"} 0.`) || strings.Contains(metrics, "home:top") {
		t.Errorf("the metrics have no first rank, or the name of a key:\n%s", metrics)
	}

	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+r.admin+"/")
	b.do(t, "document.getElementById('keys').scrollIntoView()")
	b.until(t, `document.querySelectorAll("#hot tbody .k").length > 10 && document.querySelector("#prefix tbody .k") !== null`)
	b.says(t, "#hot tbody tr:nth-child(1) .k", "home:top")
	b.says(t, "#hot tbody", `q:\xff<b>\xe2\x80\xae`)
	b.says(t, "#prefix tbody tr:nth-child(1)", "home:")
	b.says(t, "#hot tbody tr:nth-child(1) .chip", route.Owner)
	if n := eval[int](t, b, "document.images.length + document.querySelectorAll('#hot tbody b').length"); n != 0 {
		t.Error("a key has become a part of the page")
	}
	b.shot(t, "keys")
	b.do(t, "document.querySelector('#hot tbody tr:nth-child(1) button.k').click()")
	b.says(t, "#reason", "home:top hashes")
}

// TestHotSoon makes another key hot several times, while the page and a stream are open.
// It must be in the first or second list that the stream sends from then on (there is one
// each second), and on the page.
func TestHotSoon(t *testing.T) {
	testenv.OnlyFull(t, "TestHotKeys covers hot keys on the page")
	t.Parallel()
	servers := startMemcacheds(t, 3)
	r := startRingside(t, "auto", pageFront(servers[0].address, servers[1].address, servers[2].address))
	turn := briskLoad(t, r.address, "news:0")
	b := startBrowser(t, 1440, 900)
	b.open(t, "http://"+r.admin+"/")
	b.do(t, "document.getElementById('keys').scrollIntoView()")
	b.says(t, "#hot tbody", "news:0")

	lists := make(chan live.Hot, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		admin.NewClient("tcp", r.admin).Stream(ctx, "", func(topic string, data []byte) error {
			var is live.Hot
			if topic != "hot" {
				return nil
			}
			err := json.Unmarshal(data, &is)
			lists <- is
			return err
		})
	}()
	defer func() { cancel(); <-ended }()
	next := func() (is live.Hot) {
		t.Helper()
		select {
		case is = <-lists:
		case <-ended:
			t.Fatal("the stream ended")
		case <-time.After(patience):
			t.Fatal("no list came")
		}
		return is
	}
	keys, serial := 2, 0
	if testenv.Full() {
		keys = 5
	}
	for range keys {
		var key string
		testenv.Undisturbed(t, 3, 100*time.Millisecond, func() error {
			for range 3 { // let the current key stay hot for some lists, so that its counts are high
				next()
			}
			for len(lists) > 0 {
				next()
			}
			serial++
			key = fmt.Sprint("news:", serial)
			turn(key)
			for range 2 {
				if slices.ContainsFunc(next().Keys, func(k live.HotKey) bool { return string(k.Key) == key }) {
					return nil
				}
			}
			return fmt.Errorf("%s has a twentieth of all requests, and is not in the second list from then on", key)
		})
		b.says(t, "#hot tbody", key)
	}
}

// briskLoad requests about ten thousand keys a second until the test ends. Every
// twentieth request is for the hot key, which turn changes. The rest cycle through 5,000
// other keys.
func briskLoad(t testing.TB, address, hot string) (turn func(key string)) {
	t.Helper()
	c, err := dialError(address)
	if err != nil {
		t.Fatal(err)
	}
	var now atomic.Value
	now.Store(hot)
	stop, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-ended })
	go func() {
		defer close(ended)
		defer c.Close()
		answers, asked := bufio.NewReader(c), strings.Builder{}
		for i := 0; ; {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			asked.Reset()
			for range 100 {
				if i++; i%20 == 0 {
					fmt.Fprintf(&asked, "get %s\r\n", now.Load())
				} else {
					fmt.Fprintf(&asked, "get page:%d\r\n", i%5000)
				}
			}
			c.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(c, asked.String()); err != nil {
				return
			}
			for range 100 {
				if _, err := answers.ReadString('\n'); err != nil { // END, because the keys were never set
					return
				}
			}
		}
	}()
	return func(key string) { now.Store(key) }
}

// hotLoad sends requests until the test ends: half of them for the key `first`, a tenth
// for the key `second`, and the rest for one of 200 keys.
func hotLoad(t testing.TB, address, first, second string) {
	t.Helper()
	c, err := dialError(address)
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(c)
	for _, key := range []string{first, second} {
		fmt.Fprintf(c, "set %s 0 0 100\r\n%s\r\n", key, strings.Repeat("v", 100))
		if line, err := answers.ReadString('\n'); line != "STORED\r\n" {
			t.Fatal(line, err)
		}
	}
	stop := make(chan struct{})
	var ended sync.WaitGroup
	t.Cleanup(func() { close(stop); ended.Wait() })
	ended.Add(1)
	go func() {
		defer ended.Done()
		defer c.Close()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			key := fmt.Sprintf("page:%d", i%200)
			switch {
			case i%2 == 0:
				key = first
			case i%10 == 1:
				key = second
			}
			c.SetDeadline(time.Now().Add(patience))
			fmt.Fprintf(c, "get %s\r\n", key)
			for line := ""; line != "END\r\n"; {
				if line, err = answers.ReadString('\n'); err != nil {
					return
				}
			}
		}
	}()
}
