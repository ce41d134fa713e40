package admin

import (
	"net/http"
	"testing"
)

// TestOtherSitesGetNothing checks that a page of another site, in a browser on this machine,
// cannot get a profile or a control page.
func TestOtherSitesGetNothing(t *testing.T) {
	_, h := steered(Options{Access: Access{Page: Everybody, Control: Everybody, Pprof: Everybody}})
	for _, path := range []string{"/control/servers", "/control/clients", "/control/faults", "/debug/pprof/cmdline", "/debug/pprof/heap", "/api/route?key=a"} {
		for _, c := range []struct {
			header, value string
			status        int
		}{
			{"Sec-Fetch-Site", "cross-site", http.StatusForbidden},
			{"Sec-Fetch-Site", "same-site", http.StatusForbidden},
			{"Sec-Fetch-Site", "same-origin", http.StatusOK},
			{"Sec-Fetch-Site", "none", http.StatusOK},
			{"Origin", "http://evil.example", http.StatusForbidden},
			{"Origin", "null", http.StatusForbidden},
			{"Origin", "http://localhost:9151", http.StatusOK},
		} {
			r := request("GET", path, "")
			r.Header.Del(steering)
			r.Header.Set(c.header, c.value)
			if w := do(h, r); w.Code != c.status {
				t.Errorf("%s with %s: %s: %d, want %d", path, c.header, c.value, w.Code, c.status)
			}
		}
	}
}
