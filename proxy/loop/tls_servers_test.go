package loop

import (
	"cmp"
	"crypto/tls"
	"net"
	"os/exec"
	"strings"
	"testing"

	"ringside/internal/testenv"
	"ringside/proxy/table"
)

// TestTLSServers checks connections to memcached -Z.
func TestTLSServers(t *testing.T) {
	ca := testenv.NewCA(t, "ca")
	cert, key := ca.Named(t, "127.0.0.1").Write(t, t.TempDir(), "memcached")
	at := testenv.FreeAddress(t, "127.0.0.1")
	_, port, _ := net.SplitHostPort(at)
	user := []string{}
	if out, _ := exec.Command("id", "-u").Output(); strings.TrimSpace(string(out)) == "0" {
		user = []string{"-u", "root"}
	}
	testenv.Run(t, "memcached", exec.Command("memcached", append([]string{"-l", "127.0.0.1", "-p", port, "-I", "8m", "-Z", "-o", "ssl_chain_cert=" + cert + ",ssl_key=" + key}, user...)...))
	testenv.Eventually(t, "memcached speaks TLS", func() bool {
		c, err := tls.Dial("tcp", at, ca.Client())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	each(t, func(t *testing.T, o Options) {
		o.Locate = func(string) string { return at }
		for _, c := range map[string]struct {
			settings table.ServerTLS
			ok       bool
			named    string // address of the server in the table; empty: where it is
		}{
			"full":         {table.ServerTLS{CA: string(ca.PEM)}, true, ""},
			"a name":       {table.ServerTLS{CA: string(ca.PEM)}, true, "a@main:0"},
			"a host":       {table.ServerTLS{CA: string(ca.PEM)}, false, "cache.example:11211"},
			"other name":   {table.ServerTLS{CA: string(ca.PEM), Name: "cache.example"}, false, ""},
			"ca":           {table.ServerTLS{CA: string(ca.PEM), Name: "cache.example", Verify: table.VerifyCA}, true, ""},
			"other ca":     {table.ServerTLS{CA: string(testenv.NewCA(t, "x").PEM)}, false, ""},
			"other ca, ca": {table.ServerTLS{CA: string(testenv.NewCA(t, "x").PEM), Verify: table.VerifyCA}, false, ""},
			"off":          {table.ServerTLS{Verify: table.VerifyOff}, true, ""},
		} {
			tab := tableOf(cmp.Or(c.named, at))
			tab.Pools[0].TLS = table.Secure(c.settings)
			d, err := net.Dial("tcp", start(t, o, tab))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if !c.ok {
				says(t, d, "set a 0 0 1\r\n1\r\n", "SERVER_ERROR")
				continue
			}
			for _, size := range []string{"1", "2000000"} {
				n := map[string]int{"1": 1, "2000000": 2_000_000}[size]
				says(t, d, "set a 0 0 "+size+"\r\n"+strings.Repeat("v", n)+"\r\n", "STORED\r\n")
				says(t, d, "get a\r\n", "VALUE a 0 "+size+"\r\n"+strings.Repeat("v", n)+"\r\nEND\r\n")
			}
			one := "set c 0 0 3000\r\n" + strings.Repeat("v", 3000) + "\r\n"
			says(t, d, strings.Repeat(one, 100), strings.Repeat("STORED\r\n", 100)) // memcached stops in the middle of a record: see secure.Conn.WriteToServer
			says(t, d, strings.Repeat("get b\r\n", 1000), strings.Repeat("END\r\n", 1000))
		}
	})
}
