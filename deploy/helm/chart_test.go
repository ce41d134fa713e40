// Package helm tests the Helm chart. It is a separate module, so that a build of Ringside does not need
// the libraries of Helm and Kubernetes.
package helm

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"ringside/config"
)

// rendered contains the objects that a chart creates.
type rendered struct {
	maps        []corev1.ConfigMap
	deployments []appsv1.Deployment
	services    []corev1.Service
	budgets     []policyv1.PodDisruptionBudget
	networks    []networkingv1.NetworkPolicy
	monitors    []monitoringv1.PodMonitor
	notes       string
}

// load loads the chart of the application with this chart as its dependency, or this chart alone.
func load(t *testing.T, application bool) *chart.Chart {
	t.Helper()
	own, err := loader.Load("ringside")
	if err != nil {
		t.Fatal(err)
	}
	if !application {
		return own
	}
	app, err := loader.Load("testdata/application")
	if err != nil {
		t.Fatal(err)
	}
	app.AddDependency(own)
	return app
}

// render renders a chart with values in YAML.
func render(c *chart.Chart, values string) (*rendered, error) {
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependencies(c, given); err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "cache", Namespace: "prod", Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	r := &rendered{}
	for path, text := range files {
		if strings.HasSuffix(path, "NOTES.txt") {
			r.notes += text
			continue
		}
		for objects := yamlreader.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
			one, err := objects.Read()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if err := r.add(one); err != nil {
				return nil, errors.Join(errors.New(path), err)
			}
		}
	}
	return r, nil
}

// add parses an object. A field that the API does not define is an error.
func (r *rendered) add(text []byte) error {
	var is metav1.TypeMeta
	if err := yaml.Unmarshal(text, &is); err != nil || is.Kind == "" {
		return err
	}
	switch is.APIVersion + " " + is.Kind {
	case "v1 ConfigMap":
		return take(&r.maps, text)
	case "apps/v1 Deployment":
		return take(&r.deployments, text)
	case "v1 Service":
		return take(&r.services, text)
	case "policy/v1 PodDisruptionBudget":
		return take(&r.budgets, text)
	case "networking.k8s.io/v1 NetworkPolicy":
		return take(&r.networks, text)
	case "monitoring.coreos.com/v1 PodMonitor":
		return take(&r.monitors, text)
	}
	return errors.New("unexpected kind " + is.Kind)
}

func take[T any](list *[]T, text []byte) error {
	var one T
	err := yaml.UnmarshalStrict(text, &one)
	*list = append(*list, one)
	return err
}

const pools = `config: {pools: {main: {distribution: ketama, servers: ["memcached-0.memcached:11211"]}}}
`

// check checks what both kinds promise: pods that meet the standard "restricted", a valid file, and
// references that lead somewhere.
func check(t *testing.T, r *rendered) (pod *corev1.PodTemplateSpec, ringside *corev1.Container) {
	t.Helper()
	if len(r.maps) != 1 || len(r.deployments) != 1 {
		t.Fatalf("%d ConfigMaps, %d Deployments", len(r.maps), len(r.deployments))
	}
	if _, err := config.Parse("ringside.yaml", []byte(r.maps[0].Data["ringside.yaml"])); err != nil {
		t.Errorf("%v\n%s", err, r.maps[0].Data["ringside.yaml"])
	}
	pod = &r.deployments[0].Spec.Template
	security, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		t.Fatal(err)
	}
	result := policy.AggregateCheckResults(security.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec))
	if !result.Allowed {
		t.Error("restricted Pod Security: ", result.ForbiddenDetail())
	}
	if s := r.deployments[0].Spec.Selector; !selects(s, pod.Labels) {
		t.Error("the Deployment does not select its own pods")
	}
	for _, m := range r.monitors {
		if !selects(&m.Spec.Selector, pod.Labels) || *m.Spec.PodMetricsEndpoints[0].Port != "admin" {
			t.Errorf("the PodMonitor does not select the pods: %v, %v", m.Spec.Selector, pod.Labels)
		}
	}
	if pod.Spec.Volumes[0].ConfigMap.Name != r.maps[0].Name {
		t.Error("the pods mount another ConfigMap")
	}
	list := append(pod.Spec.InitContainers, pod.Spec.Containers...)
	for i := range list {
		if list[i].Name == "ringside" {
			ringside = &list[i]
		}
	}
	if ringside == nil || ringside.Resources.Limits.Memory().IsZero() || ringside.VolumeMounts[0].Name != pod.Spec.Volumes[0].Name {
		t.Fatalf("the container is %+v", ringside)
	}
	return pod, ringside
}

func selects(s *metav1.LabelSelector, has map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(has))
}

func TestDeployment(t *testing.T) {
	r, err := render(load(t, false), pools+"monitor: {enabled: true, labels: {release: prometheus}}\nserviceAccount: discovery\nenv: [{name: A, value: b}]\npullSecrets: [registry]\npodLabels: {team: web}\ntolerations: [{operator: Exists}]\n")
	if err != nil {
		t.Fatal(err)
	}
	pod, c := check(t, r)
	if c.Image != "ringside:0.1.0" || pod.Labels["team"] != "web" || !*pod.Spec.AutomountServiceAccountToken || pod.Spec.ImagePullSecrets[0].Name != "registry" {
		t.Errorf("image %s, labels %v", c.Image, pod.Labels)
	}
	if s := r.services[0].Spec; !selects(metav1.SetAsLabelSelector(s.Selector), pod.Labels) || s.Ports[0].TargetPort.StrVal != c.Ports[0].Name {
		t.Error("the Service leads nowhere")
	}
	if b := r.budgets[0].Spec; !selects(b.Selector, pod.Labels) || b.MinAvailable.IntVal >= *r.deployments[0].Spec.Replicas {
		t.Error("the PodDisruptionBudget is of no pod, or lets none go")
	}
	spread := pod.Spec.TopologySpreadConstraints
	if len(spread) != 2 || !selects(spread[0].LabelSelector, pod.Labels) {
		t.Errorf("spread: %v", spread)
	}
	n := r.networks[0].Spec
	if !selects(&n.PodSelector, pod.Labels) || len(n.Ingress) != 2 || n.Ingress[1].Ports[0].Port.StrVal != "admin" || n.Ingress[1].From[0].NamespaceSelector == nil {
		t.Errorf("NetworkPolicy: %+v", n)
	}
	if len(r.monitors) != 1 || !strings.Contains(r.notes, "cache-ringside.prod:11211") {
		t.Errorf("%d PodMonitors; notes: %s", len(r.monitors), r.notes)
	}
}

func TestSmall(t *testing.T) {
	r, err := render(load(t, false), pools+"replicas: 1\nminAvailable: 0\nnetworkPolicy: {enabled: false}\nspread: []\n")
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	if len(r.budgets)+len(r.networks)+len(r.monitors) != 0 {
		t.Errorf("%d budgets, %d policies, %d monitors", len(r.budgets), len(r.networks), len(r.monitors))
	}
}

func TestSidecar(t *testing.T) {
	r, err := render(load(t, true), "")
	if err != nil {
		t.Fatal(err)
	}
	pod, c := check(t, r)
	if len(r.services)+len(r.networks)+len(r.budgets) != 0 || len(r.monitors) != 1 {
		t.Error("a sidecar needs only a ConfigMap and a PodMonitor")
	}
	if len(pod.Spec.InitContainers) != 1 || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways || !strings.Contains(r.maps[0].Data["ringside.yaml"], "listen: 127.0.0.1:11211") {
		t.Errorf("the sidecar is %+v", c)
	}
}

func TestWrongValues(t *testing.T) {
	for values, want := range map[string]string{
		"":                                    "config.pools is empty",
		pools + "kind: daemonset\n":           "kind",
		pools + "replicas: 0\n":               "replicas",
		pools + "replica: 2\n":                "replica",
		pools + "service: {port: 70000}\n":    "port",
		pools + "image: {pullPolicy: no}\n":   "pullPolicy",
		pools + "networkPolicy: {on: true}\n": "on",
	} {
		if _, err := render(load(t, false), values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", values, err)
		}
	}
}
