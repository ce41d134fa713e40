package discover

// This file asks the Kubernetes API for the endpoints of a service.

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringside/proxy/serverlist"
)

// Cluster is a Kubernetes API server, and how to authenticate there.
type Cluster struct {
	URL       string // such as https://10.96.0.1:443
	TokenFile string // read for each request, because Kubernetes renews the token
	CAFile    string // certificates that the server's certificate is checked against; read for each request, too

	mu     sync.Mutex
	client *http.Client // nil: no request was possible yet
	ca     []byte       // the text of CAFile that client uses
}

// Paths of the files that Kubernetes puts into each pod.
const (
	tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	caFile    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// ownCluster returns the cluster in which this process runs.
var ownCluster = sync.OnceValues(func() (*Cluster, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this process runs in no Kubernetes pod: KUBERNETES_SERVICE_HOST is not set")
	}
	return &Cluster{URL: "https://" + net.JoinHostPort(host, port), TokenFile: tokenFile, CAFile: caFile}, nil
})

// sliceEndpoint is an endpoint of an EndpointSlice (discovery.k8s.io/v1), as far as it matters here.
type sliceEndpoint struct {
	Addresses  firstText `json:"addresses"`
	Conditions struct {
		Ready       *bool `json:"ready"`
		Serving     *bool `json:"serving"`
		Terminating *bool `json:"terminating"`
	} `json:"conditions"`
	TargetRef *struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"targetRef"`
}

// firstText is the first text of a list.
type firstText string

// UnmarshalJSON implements json.Unmarshaler.
func (f *firstText) UnmarshalJSON(list []byte) error {
	d := json.NewDecoder(bytes.NewReader(list))
	*f = ""
	first, err := d.Token() // [ or null
	if err == nil && first != nil && d.More() {
		err = d.Decode((*string)(f))
	}
	return err
}

// pod is an endpoint that serves.
type pod struct {
	address netip.Addr
	name    string // empty: the endpoint is no pod
	ending  bool
}

// mostPods is the largest number of pods of a reply that are remembered. A pod can be in several slices.
const mostPods = 16 * serverlist.MostServers

// page is one reply with EndpointSlices.
type page struct {
	servers []serverlist.Server
	version string // the resource version
	more    string // continues the list; empty: it is complete
}

// readPage reads a reply with EndpointSlices. A reply can be large, so only what matters of it is kept
// in memory.
func readPage(r io.Reader, s serverlist.Source) (p page, err error) {
	d := jsonReader{json.NewDecoder(r)}
	err = d.fields(func(name string) error {
		switch name {
		case "metadata":
			return d.fields(func(name string) error {
				switch name {
				case "resourceVersion":
					return d.Decode(&p.version)
				case "continue":
					return d.Decode(&p.more)
				}
				return d.skip()
			})
		case "items":
			return d.elements(func() error {
				list, err := d.slice(s, mostPods-len(p.servers))
				p.servers = append(p.servers, list...)
				return err
			})
		}
		return d.skip()
	})
	return p, err
}

// jsonReader reads JSON value by value.
type jsonReader struct{ *json.Decoder }

// opens reads the start of an object or a list, or null, for which it returns false.
func (d jsonReader) opens(start json.Delim) (bool, error) {
	t, err := d.Token()
	if err == nil && t != nil && t != start {
		err = fmt.Errorf("it has %v in place of %v", t, start)
	}
	return t != nil, err
}

// fields reads an object. It calls read for each field, to read the value.
func (d jsonReader) fields(read func(name string) error) error {
	return d.within('{', func() error {
		name, err := d.Token()
		if err != nil {
			return err
		}
		return read(name.(string))
	})
}

// elements reads a list. It calls read for each element.
func (d jsonReader) elements(read func() error) error { return d.within('[', read) }

func (d jsonReader) within(start json.Delim, read func() error) error {
	is, err := d.opens(start)
	for is && err == nil && d.More() {
		err = read()
	}
	if is && err == nil {
		_, err = d.Token() // the end
	}
	return err
}

// skip reads a value that does not matter.
func (d jsonReader) skip() error {
	for depth := 0; ; {
		t, err := d.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// slice reads an EndpointSlice, and returns its endpoints that serve. There may be at most that many.
func (d jsonReader) slice(s serverlist.Source, most int) ([]serverlist.Server, error) {
	var pods []pod
	family, port := "", ""
	if _, err := strconv.Atoi(s.Port); err == nil {
		port = s.Port
	}
	err := d.fields(func(name string) error {
		switch name {
		case "addressType":
			return d.Decode(&family)
		case "ports":
			return d.elements(func() error {
				var is struct {
					Name *string `json:"name"`
					Port *int    `json:"port"`
				}
				err := d.Decode(&is)
				if _, fixed := strconv.Atoi(s.Port); fixed != nil && is.Name != nil && *is.Name == s.Port && is.Port != nil && *is.Port > 0 && *is.Port <= 65535 {
					port = strconv.Itoa(*is.Port)
				}
				return err
			})
		case "endpoints":
			return d.elements(func() error {
				var e sliceEndpoint
				err := d.Decode(&e)
				p, serves := e.pod()
				if serves {
					pods = append(pods, p)
				}
				if len(pods) > most {
					return fmt.Errorf("it has more than %d endpoints", mostPods)
				}
				return err
			})
		}
		return d.skip()
	})
	if port == "" || family != "IPv4" && family != "IPv6" {
		return nil, err
	}
	list := make([]serverlist.Server, len(pods))
	for i, p := range pods {
		at := net.JoinHostPort(p.address.String(), port)
		name := at
		if p.name != "" {
			name = net.JoinHostPort(strings.Join([]string{p.name, s.Service, s.Namespace}, "."), port)
		}
		list[i] = serverlist.Server{Name: name, Address: at, Weight: 1, Ending: p.ending}
	}
	return list, err
}

// pod returns the endpoint e if it serves.
func (e *sliceEndpoint) pod() (p pod, serves bool) {
	is := func(condition *bool, usual bool) bool {
		if condition == nil {
			return usual
		}
		return *condition
	}
	if e.Addresses == "" || !is(e.Conditions.Serving, is(e.Conditions.Ready, true)) {
		return pod{}, false
	}
	ip, err := netip.ParseAddr(string(e.Addresses))
	if err != nil {
		return pod{}, false
	}
	p = pod{address: ip, ending: is(e.Conditions.Terminating, false)}
	if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
		p.name = e.TargetRef.Name
	}
	return p, true
}

// askKubernetes returns the endpoints of a service. A server has the name POD.SERVICE.NAMESPACE:PORT.
func (a *Asker) askKubernetes(ctx context.Context, s serverlist.Source, m *memory) ([]serverlist.Server, error) {
	c, err := a.cluster()
	if err != nil {
		return nil, err
	}
	var list []serverlist.Server
	query := url.Values{"labelSelector": {"kubernetes.io/service-name=" + s.Service}, "limit": {"500"}}
	for range 1 + serverlist.MostServers { // each page has a server
		body, err := c.get(ctx, s, query)
		if err != nil {
			return nil, err
		}
		page, err := readPage(io.LimitReader(body, 16*mostBytes), s)
		body.Close()
		if err != nil {
			return nil, fmt.Errorf("the reply of the Kubernetes API is wrong: %w", err)
		}
		list = append(list, page.servers...)
		m.resume = page.version
		if page.more == "" || len(list) > serverlist.MostServers {
			return onePerName(list), nil
		}
		query.Set("continue", page.more)
	}
	return nil, errors.New("the reply of the Kubernetes API does not end")
}

// onePerName returns the list with one server of each name. A pod can have an address of each family,
// and can be in two slices while it moves between them: the one with an IPv4 address counts, else the
// first.
func onePerName(list []serverlist.Server) (one []serverlist.Server) {
	at := map[string]int{}
	for _, s := range list {
		i, twice := at[s.Name]
		switch {
		case !twice:
			at[s.Name] = len(one)
			one = append(one, s)
		case strings.HasPrefix(one[i].Address, "[") && !strings.HasPrefix(s.Address, "["):
			one[i] = s
		}
	}
	return one
}

func (a *Asker) cluster() (*Cluster, error) {
	if a.Cluster != nil {
		return a.Cluster, nil
	}
	return ownCluster()
}

// connect returns the HTTP client. If CAFile has changed, it is a new one: Kubernetes renews the CA while
// pods run.
func (c *Cluster) connect() (*http.Client, error) {
	var ca []byte
	if c.CAFile != "" {
		var err error
		if ca, err = readFile(c.CAFile); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil && bytes.Equal(ca, c.ca) {
		return c.client, nil
	}
	t := &http.Transport{TLSHandshakeTimeout: askTime, IdleConnTimeout: time.Minute, MaxIdleConns: 4, MaxResponseHeaderBytes: 64 << 10}
	if c.CAFile != "" {
		t.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s has no certificate", c.CAFile)
		}
	}
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	c.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.ca = ca
	return c.client, nil
}

// get requests the EndpointSlices of a namespace. The caller closes the body.
func (c *Cluster) get(ctx context.Context, s serverlist.Source, query url.Values) (io.ReadCloser, error) {
	client, err := c.connect()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/apis/discovery.k8s.io/v1/namespaces/"+s.Namespace+"/endpointslices?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	if c.TokenFile != "" {
		token, err := readFile(c.TokenFile)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	r.Header.Set("Accept", "application/json")
	reply, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode == http.StatusOK {
		return reply.Body, nil
	}
	reply.Body.Close()
	why := ""
	switch reply.StatusCode {
	case http.StatusForbidden:
		why = ": the service account may not list and watch endpointslices in this namespace (docs/discovery.md has the Role)"
	case http.StatusUnauthorized:
		why = ": the token of the pod is not accepted"
	}
	return nil, fmt.Errorf("the Kubernetes API replied %d %s%s", reply.StatusCode, http.StatusText(reply.StatusCode), why)
}

// watch calls changed for each change of the service's endpoints after the list with the version
// resume, until the API ends the watch.
func (c *Cluster) watch(ctx context.Context, s serverlist.Source, resume string, changed func()) error {
	body, err := c.get(ctx, s, url.Values{"labelSelector": {"kubernetes.io/service-name=" + s.Service}, "watch": {"true"},
		"resourceVersion": {resume}, "timeoutSeconds": {"300"}})
	if err != nil {
		return err
	}
	defer body.Close()
	for r := bufio.NewReader(body); ; {
		some := false
		for whole := false; !whole; { // an event is a line, which may be long
			part, err := r.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return err
			}
			some, whole = some || len(strings.TrimSpace(string(part))) > 0, err == nil
		}
		if some {
			changed()
		}
	}
}
