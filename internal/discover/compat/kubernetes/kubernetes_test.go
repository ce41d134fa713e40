// Package kubernetes tests k8s+ sources against EndpointSlices and watches that are made with the types of
// the Kubernetes API. It is a separate module, so that a build of Ringside does not need Kubernetes.
package kubernetes

import (
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"ringside/config"
	"ringside/internal/discover"
)

const service = "mc"

// api serves the EndpointSlices of a namespace, and watches of them, over TLS.
type api struct {
	mu      sync.Mutex
	slices  map[string]discoveryv1.EndpointSlice // by name
	version int                                  // resource version
	events  []metav1.WatchEvent                  // event i has led to version i+1
	changed chan struct{}                        // closed when there is another event
	watches int                                  // watches that have begun
	expired bool                                 // the next watch gets the error 410 Gone
	token   string
}

func start(t *testing.T) (*api, *discover.Cluster) {
	t.Helper()
	a := &api{slices: map[string]discoveryv1.EndpointSlice{}, changed: make(chan struct{}), token: "first"}
	s := httptest.NewTLSServer(a)
	t.Cleanup(s.Close)
	dir := t.TempDir()
	c := &discover.Cluster{URL: s.URL, TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca.crt")}
	for path, text := range map[string][]byte{c.TokenFile: []byte(a.token), c.CAFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return a, c
}

// add adds an event of the given type, as the API sends it. For a bookmark, the slice only has a version.
func (a *api) add(kind string, slice discoveryv1.EndpointSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	slice.TypeMeta = metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: discoveryv1.SchemeGroupVersion.String()}
	slice.ResourceVersion = strconv.Itoa(a.version)
	switch kind {
	case "ADDED", "MODIFIED":
		a.slices[slice.Name] = slice
	case "DELETED":
		delete(a.slices, slice.Name)
	}
	raw, err := json.Marshal(&slice)
	if err != nil {
		panic(err)
	}
	a.events = append(a.events, metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw}})
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := r.URL.Query()
	if r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices" || q.Get("labelSelector") != discoveryv1.LabelServiceName+"="+service {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+a.token {
		fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
		return
	}
	if q.Get("watch") == "true" {
		a.watch(w, r)
		return
	}
	list := discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{Kind: "EndpointSliceList", APIVersion: discoveryv1.SchemeGroupVersion.String()}}
	list.ResourceVersion = strconv.Itoa(a.version)
	for _, name := range slices.Sorted(maps.Keys(a.slices)) {
		list.Items = append(list.Items, a.slices[name])
	}
	json.NewEncoder(w).Encode(&list)
}

// watch sends the events after the requested version, until the client ends the watch. The caller holds mu.
func (a *api) watch(w http.ResponseWriter, r *http.Request) {
	a.watches++
	at, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	out := json.NewEncoder(w)
	if a.expired {
		a.expired = false
		gone, _ := json.Marshal(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
		out.Encode(&metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: gone}})
		return
	}
	w.(http.Flusher).Flush()
	for {
		for ; at < len(a.events); at++ {
			out.Encode(&a.events[at])
		}
		w.(http.Flusher).Flush()
		changed := a.changed
		a.mu.Unlock()
		ended := false
		select {
		case <-changed:
		case <-r.Context().Done():
			ended = true
		}
		if a.mu.Lock(); ended {
			return
		}
	}
}

func fail(w http.ResponseWriter, code int, why metav1.StatusReason) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: why, Code: int32(code)})
}

// slice returns an EndpointSlice of the service. Each endpoint is "POD ADDRESS [STATE]".
func slice(name string, family discoveryv1.AddressType, endpoints ...string) discoveryv1.EndpointSlice {
	port, other, called, metrics, protocol := int32(11211), int32(9150), "memcached", "metrics", corev1.ProtocolTCP
	s := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "prod", Labels: map[string]string{discoveryv1.LabelServiceName: service}}, AddressType: family}
	s.Ports = []discoveryv1.EndpointPort{{Name: &metrics, Port: &other, Protocol: &protocol}, {Name: &called, Port: &port, Protocol: &protocol}}
	for _, text := range endpoints {
		f := append(strings.Fields(text), "ready")
		ready, serving, terminating, node := f[2] == "ready", f[2] == "ready" || f[2] == "ending", f[2] == "ending" || f[2] == "ended", "node-1"
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{f[1]}, Hostname: &f[0], NodeName: &node, Zone: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "prod", Name: f[0], UID: "1"},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: node}}},
		})
	}
	return s
}

// follow starts to follow the service, and returns a function that waits until it has the servers want.
func follow(t *testing.T, c *discover.Cluster) func(want string) {
	t.Helper()
	f, err := config.Parse("x.yaml", []byte("listen: 127.0.0.1:1\npools: {m: {distribution: ketama-points, servers: {discover: \"k8s+prod/mc:memcached\", every: 1h, keep: off, max_change: 100%}}}"))
	if err != nil {
		t.Fatal(err)
	}
	w := discover.NewWatch(&discover.Asker{Cluster: c}, slog.New(slog.DiscardHandler))
	t.Cleanup(w.Stop)
	w.Use(f, true)
	return func(want string) {
		t.Helper()
		is := ""
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			var words []string
			for _, s := range w.Lists()[0].Servers {
				word := strings.TrimSuffix(s.Name, ".mc.prod:11211") + "=" + s.Address
				if s.Ending {
					word += "=ending"
				}
				words = append(words, word)
			}
			if is = strings.Join(words, " "); is == want {
				return
			}
		}
		t.Fatalf("the servers are %q, not %q: %s", is, want, w.States()[0].Problem)
	}
}

// TestWatch follows a StatefulSet through a rolling restart, a second slice and a bookmark. The interval of
// the source is an hour, so only the watch shows the changes.
func TestWatch(t *testing.T) {
	a, c := start(t)
	a.add("ADDED", slice("mc-x", discoveryv1.AddressTypeIPv4, "mc-0 10.0.0.1", "mc-1 10.0.0.2"))
	has := follow(t, c)
	has("mc-0=10.0.0.1:11211 mc-1=10.0.0.2:11211")
	for _, step := range []struct {
		kind  string
		slice discoveryv1.EndpointSlice
		want  string
	}{
		{"MODIFIED", slice("mc-x", discoveryv1.AddressTypeIPv4, "mc-0 10.0.0.1", "mc-1 10.0.0.2 ending"), "mc-0=10.0.0.1:11211 mc-1=10.0.0.2:11211=ending"},
		{"MODIFIED", slice("mc-x", discoveryv1.AddressTypeIPv4, "mc-0 10.0.0.1", "mc-1 10.0.0.2 ended"), "mc-0=10.0.0.1:11211"},
		{"MODIFIED", slice("mc-x", discoveryv1.AddressTypeIPv4, "mc-0 10.0.0.1", "mc-1 10.0.0.9 starting"), "mc-0=10.0.0.1:11211"},
		{"MODIFIED", slice("mc-x", discoveryv1.AddressTypeIPv4, "mc-0 10.0.0.1", "mc-1 10.0.0.9"), "mc-0=10.0.0.1:11211 mc-1=10.0.0.9:11211"},
		{"ADDED", slice("mc-y", discoveryv1.AddressTypeIPv4, "mc-2 10.0.0.3"), "mc-0=10.0.0.1:11211 mc-1=10.0.0.9:11211 mc-2=10.0.0.3:11211"},
		{"BOOKMARK", discoveryv1.EndpointSlice{}, "mc-0=10.0.0.1:11211 mc-1=10.0.0.9:11211 mc-2=10.0.0.3:11211"},
		{"ADDED", slice("mc-z", discoveryv1.AddressTypeIPv6, "mc-2 fd00::3", "mc-3 fd00::4"), "mc-0=10.0.0.1:11211 mc-1=10.0.0.9:11211 mc-2=10.0.0.3:11211 mc-3=[fd00::4]:11211"},
		{"DELETED", slice("mc-y", discoveryv1.AddressTypeIPv4), "mc-0=10.0.0.1:11211 mc-1=10.0.0.9:11211 mc-2=[fd00::3]:11211 mc-3=[fd00::4]:11211"},
	} {
		a.add(step.kind, step.slice)
		has(step.want)
	}
}

// TestWatchEnds ends the watch with 410 Gone, and replaces the token of the pod.
func TestWatchEnds(t *testing.T) {
	a, c := start(t)
	a.mu.Lock()
	a.expired = true
	a.mu.Unlock()
	a.add("ADDED", slice("mc-x", discoveryv1.AddressTypeIPv4, "mc-0 10.0.0.1"))
	has := follow(t, c)
	has("mc-0=10.0.0.1:11211")
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		a.mu.Lock()
		if a.watches > 0 {
			break
		}
		if a.mu.Unlock(); time.Now().After(end) {
			t.Fatal("there is no watch")
		}
	}
	a.token = "second"
	err := os.WriteFile(c.TokenFile, []byte(a.token+"\n"), 0o600)
	a.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	a.add("MODIFIED", slice("mc-x", discoveryv1.AddressTypeIPv4, "mc-0 10.0.0.2"))
	has("mc-0=10.0.0.2:11211")
}
