{{- define "ringside.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "ringside.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ringside.labels" -}}
{{ include "ringside.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* ringside.yaml with the settings that the chart needs. The settings of the user win. */}}
{{- define "ringside.config" -}}
{{- if not .Values.config.pools }}{{ fail "config.pools is empty: name your memcached servers, such as --set-json 'config.pools={\"main\":{\"distribution\":\"ketama\",\"servers\":[\"memcached-0.memcached:11211\"]}}'" }}{{ end }}
{{- $ours := dict "admin" ":9151" "watch" "on" }}
{{- if eq .Values.kind "sidecar" }}
{{- $ours = merge $ours (dict "listen" "127.0.0.1:11211" "limits" (dict "memory" "64MiB")) }}
{{- else }}
{{- $ours = merge $ours (dict "listen" ":11211" "limits" (dict "memory" "256MiB" "linger" "10s" "drain" "20s")) }}
{{- end }}
{{- merge (deepCopy .Values.config) $ours | toYaml }}
{{- end }}

{{/* The parts that the container has in both kinds. */}}
{{- define "ringside.container" -}}
name: ringside
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, -c, /etc/ringside/ringside.yaml]
env:
  - {name: ZONE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
livenessProbe: {httpGet: {path: /healthz, port: admin}, periodSeconds: 10, failureThreshold: 3}
resources: {{ toJson .Values.resources }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, runAsNonRoot: true, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
volumeMounts: [{name: ringside, mountPath: /etc/ringside, readOnly: true}]
{{- end }}

{{/* An init container for the pods of another chart. */}}
{{- define "ringside.sidecar" -}}
{{ include "ringside.container" . }}
restartPolicy: Always
ports: [{name: admin, containerPort: 9151}]
startupProbe: {httpGet: {path: /readyz, port: admin}, periodSeconds: 1, failureThreshold: 30}
readinessProbe: {httpGet: {path: /readyz, port: admin}}
{{- end }}

{{/* The volume of the pods of another chart. */}}
{{- define "ringside.volume" -}}
{name: ringside, configMap: {name: {{ include "ringside.name" . }}}}
{{- end }}
