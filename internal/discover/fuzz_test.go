package discover

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"testing"

	"ringside/proxy/serverlist"
)

// FuzzAnswers parses the answers of sources, which come over the network or from files. Each server has a
// name, and an address with a port.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("10.0.0.1:11211 name=a weight=2\n# x\n[fd00::1]:1\n"))
	f.Add([]byte("CONFIG cluster 0 27\r\n12\na|10.0.0.1|11211 b||1\n\r\nEND\r\n"))
	f.Add([]byte(slice("IPv4", "11211", "mc-1 10.0.0.2", "mc-2 10.0.0.3 ending")))
	f.Add([]byte(`{"addressType":"IPv6","endpoints":[{"addresses":["::1"]}],"ports":[{"port":1,"name":"memcached"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		check := func(list []serverlist.Server) {
			for _, s := range list {
				if _, port, err := net.SplitHostPort(s.Address); err != nil || port == "" || s.Name == "" || s.Weight < 1 {
					t.Errorf("%q gives %+v", text, s)
				}
			}
		}
		list, _ := parseList("x", text)
		check(list)
		_, list, _ = readCluster(bufio.NewReader(bytes.NewReader(text)))
		check(list)
		for _, port := range []string{"memcached", "1"} {
			list, _ := jsonReader{json.NewDecoder(bytes.NewReader(text))}.slice(serverlist.Source{Namespace: "n", Service: "s", Port: port}, mostPods)
			check(onePerName(list))
		}
	})
}
