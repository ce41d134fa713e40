// Package kubernetes checks the manifests against the types of the Kubernetes API. It is a
// separate module, so that a build of Ringside does not need Kubernetes.
package kubernetes

// Tests that a cluster would accept the manifests, and that references between their objects
// are valid.

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// manifest contains the objects of one file.
type manifest struct {
	maps        map[string]bool // by the name of a ConfigMap: whether it has a ringside.yaml
	deployments []appsv1.Deployment
	services    []corev1.Service
	budgets     []policyv1.PodDisruptionBudget
}

// read parses the manifest at path. A field that the API does not define is an error, so
// misspelt fields and fields of the wrong type or in the wrong place are found.
func read(t *testing.T, path string) (m manifest) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m.maps = map[string]bool{}
	for _, one := range bytes.Split(text, []byte("\n---\n")) {
		var is struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(one, &is); err != nil {
			t.Fatal(err)
		}
		take := func(to any) {
			if err := yaml.UnmarshalStrict(one, to); err != nil {
				t.Errorf("%s: %s: %v", path, is.Kind, err)
			}
		}
		switch is.APIVersion + " " + is.Kind {
		case "v1 ConfigMap":
			var c corev1.ConfigMap
			take(&c)
			m.maps[c.Name] = c.Data["ringside.yaml"] != ""
		case "apps/v1 Deployment":
			m.deployments = append(m.deployments, appsv1.Deployment{})
			take(&m.deployments[len(m.deployments)-1])
		case "v1 Service":
			m.services = append(m.services, corev1.Service{})
			take(&m.services[len(m.services)-1])
		case "policy/v1 PodDisruptionBudget":
			m.budgets = append(m.budgets, policyv1.PodDisruptionBudget{})
			take(&m.budgets[len(m.budgets)-1])
		default:
			t.Errorf("%s: an object of %s %s", path, is.APIVersion, is.Kind)
		}
	}
	return m
}

// within reports whether selector matches an object with these labels.
func within(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

func TestManifests(t *testing.T) {
	paths, err := filepath.Glob("*.yaml")
	if err != nil || len(paths) != 2 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		m := read(t, path)
		if len(m.deployments) != 1 {
			t.Fatalf("%s: %d Deployments", path, len(m.deployments))
		}
		d := &m.deployments[0]
		pod, labels := &d.Spec.Template.Spec, d.Spec.Template.Labels
		if !within(d.Spec.Selector.MatchLabels, labels) {
			t.Errorf("%s: the Deployment does not select its own pods", path)
		}
		volumes := map[string]bool{}
		for _, v := range pod.Volumes {
			if v.ConfigMap == nil || !m.maps[v.ConfigMap.Name] {
				t.Errorf("%s: the volume %s is of no ConfigMap with a ringside.yaml", path, v.Name)
			}
			volumes[v.Name] = true
		}
		ports := map[string]int32{}
		ringsides := 0
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			for _, v := range c.VolumeMounts {
				if !volumes[v.Name] || v.SubPath != "" {
					t.Errorf("%s: %s mounts %s, which is no volume as a whole", path, c.Name, v.Name)
				}
			}
			if c.Name != "ringside" {
				continue
			}
			ringsides++
			for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				if p != nil && (p.HTTPGet == nil || ports[p.HTTPGet.Port.StrVal] == 0) {
					t.Errorf("%s: a probe asks a port that the container doesn't name", path)
				}
			}
			if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
				t.Errorf("%s: what restarts a pod must ask /healthz, and what takes clients from it /readyz", path)
			}
			if s := c.SecurityContext; s.RunAsNonRoot == nil || !*s.RunAsNonRoot || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: Ringside runs as root, or without a limit of memory", path)
			}
		}
		if ringsides != 1 {
			t.Errorf("%s: %d instances in a pod", path, ringsides)
		}
		for _, s := range m.services {
			if !within(s.Spec.Selector, labels) {
				t.Errorf("%s: the Service %s selects no pod", path, s.Name)
			}
			for _, p := range s.Spec.Ports {
				if ports[p.TargetPort.StrVal] == 0 {
					t.Errorf("%s: the Service %s leads to a port %q that is not there", path, s.Name, p.TargetPort.String())
				}
			}
		}
		for _, b := range m.budgets {
			if !within(b.Spec.Selector.MatchLabels, labels) || b.Spec.MinAvailable.IntVal >= *d.Spec.Replicas {
				t.Errorf("%s: the PodDisruptionBudget is of no pod, or lets none go", path)
			}
		}
	}
}
