package discover

// This file asks the Kubernetes API for the endpoints of a service.

import (
	"bufio"
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
	CAFile    string // certificates that the server's certificate is checked against

	once   sync.Once
	client *http.Client
	err    error // why there is no client
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

// slices is a list of EndpointSlices (discovery.k8s.io/v1), as far as it matters here.
type endpointSlices struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"` // more slices follow
	} `json:"metadata"`
	Items []endpointSlice `json:"items"`
}

type endpointSlice struct {
	AddressType string `json:"addressType"`
	Ports       []struct {
		Name *string `json:"name"`
		Port *int    `json:"port"`
	} `json:"ports"`
	Endpoints []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			Ready       *bool `json:"ready"`
			Serving     *bool `json:"serving"`
			Terminating *bool `json:"terminating"`
		} `json:"conditions"`
		TargetRef *struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"targetRef"`
	} `json:"endpoints"`
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
		var page endpointSlices
		err = json.NewDecoder(io.LimitReader(body, 16*mostBytes)).Decode(&page)
		body.Close()
		if err != nil {
			return nil, fmt.Errorf("the reply of the Kubernetes API is wrong: %w", err)
		}
		for i := range page.Items {
			list = page.Items[i].appendTo(list, s)
		}
		m.resume = page.Metadata.ResourceVersion
		if page.Metadata.Continue == "" || len(list) > serverlist.MostServers {
			return onePerName(list), nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
	return nil, errors.New("the reply of the Kubernetes API does not end")
}

// appendTo appends the endpoints that serve.
func (e *endpointSlice) appendTo(list []serverlist.Server, s serverlist.Source) []serverlist.Server {
	port := s.Port
	if _, err := strconv.Atoi(port); err != nil {
		port = ""
		for _, p := range e.Ports {
			if p.Name != nil && *p.Name == s.Port && p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
				port = strconv.Itoa(*p.Port)
			}
		}
	}
	if port == "" || e.AddressType != "IPv4" && e.AddressType != "IPv6" {
		return list
	}
	is := func(condition *bool, usual bool) bool {
		if condition == nil {
			return usual
		}
		return *condition
	}
	for _, p := range e.Endpoints {
		if len(p.Addresses) == 0 || !is(p.Conditions.Serving, is(p.Conditions.Ready, true)) {
			continue
		}
		ip, err := netip.ParseAddr(p.Addresses[0])
		if err != nil {
			continue
		}
		at := net.JoinHostPort(ip.String(), port)
		name := at
		if p.TargetRef != nil && p.TargetRef.Kind == "Pod" {
			name = net.JoinHostPort(strings.Join([]string{p.TargetRef.Name, s.Service, s.Namespace}, "."), port)
		}
		list = append(list, serverlist.Server{Name: name, Address: at, Weight: 1, Ending: is(p.Conditions.Terminating, false)})
	}
	return list
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

// connect creates the HTTP client.
func (c *Cluster) connect() {
	t := &http.Transport{TLSHandshakeTimeout: askTime, IdleConnTimeout: time.Minute, MaxIdleConns: 4, MaxResponseHeaderBytes: 64 << 10}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s has no certificate", c.CAFile)
		}
		if err != nil {
			c.err = err
			return
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	c.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get requests the EndpointSlices of a namespace. The caller closes the body.
func (c *Cluster) get(ctx context.Context, s serverlist.Source, query url.Values) (io.ReadCloser, error) {
	if c.once.Do(c.connect); c.err != nil {
		return nil, c.err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/apis/discovery.k8s.io/v1/namespaces/"+s.Namespace+"/endpointslices?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	if c.TokenFile != "" {
		token, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	r.Header.Set("Accept", "application/json")
	reply, err := c.client.Do(r)
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
