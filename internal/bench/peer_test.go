//go:build linux

package bench

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestConfigurationsNameTheServers(t *testing.T) {
	servers := []string{"127.0.0.1:31001", "127.0.0.1:31002", "127.0.0.1:31003"}
	for name, row := range map[string]struct {
		configure func(Place) ([]string, error)
		file      string
		says      []string
	}{
		"ringside":        {ringsideArgs, "ringside.yaml", []string{"listen: 127.0.0.1:31000\n", "distribution: ketama\n", "- 127.0.0.1:31001\n", "- 127.0.0.1:31003\n", "admin: {address: \"127.0.0.1:31009\", }\n", "loops: 2", "request: 30s"}},
		"nutcracker":      {nutcrackerArgs, "nutcracker.yml", []string{"listen: 127.0.0.1:31000\n", "hash: md5\n", "- 127.0.0.1:31001:1\n", "- 127.0.0.1:31003:1\n"}},
		"haproxy":         {haproxyArgs, "haproxy.cfg", []string{"bind 127.0.0.1:31000 ", "server one 127.0.0.1:31001\n", "mode tcp\n"}},
		"memcached proxy": {memcachedProxyArgs, "proxy.lua", []string{`mcp.backend("server1", "127.0.0.1", 31001)`, `mcp.backend("server3", "127.0.0.1", 31003)`}},
	} {
		dir := t.TempDir()
		args, err := row.configure(Place{Dir: dir, port: 31000, admin: 31009, Servers: servers, Loops: 2, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(args, " "), dir+"/"+row.file) {
			t.Errorf("%s is started with %q", name, args)
		}
		text, err := os.ReadFile(dir + "/" + row.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range row.says {
			if !strings.Contains(string(text), s) {
				t.Errorf("%s lacks %q:\n%s", row.file, s, text)
			}
		}
	}
}
