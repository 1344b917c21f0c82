{{/* Fails on values with which a program would not start, and which the schema cannot express. */}}
{{- define "gpu-manager.validate" -}}
{{- $version := .Capabilities.KubeVersion.Version -}}
{{- $agent := .Values.agent -}}
{{- $variables := list }}{{ range $agent.extraEnv }}{{ $variables = append $variables .name }}{{ end }}
{{- if not (or $agent.privileged $agent.runtimeClassName (has "NVIDIA_VISIBLE_DEVICES" $variables)) }}
{{- fail "agent.privileged=false needs agent.runtimeClassName (`nvidia` with NVIDIA Container Toolkit), or NVIDIA_VISIBLE_DEVICES in agent.extraEnv if NVIDIA's runtime is the default: otherwise the agent cannot open the GPUs' device nodes" }}
{{- end }}
{{- if and (ne $agent.interface "device-plugin") (semverCompare "<1.36.0-0" $version) }}
{{- fail (printf "agent.interface=%s needs Kubernetes 1.36 or newer; this is %s" $agent.interface $version) }}
{{- end }}
{{- if and (ne .Values.webhook.claims "never") (semverCompare "<1.36.0-0" $version) }}
{{- fail (printf "webhook.claims=%s needs Kubernetes 1.36 or newer; this is %s" .Values.webhook.claims $version) }}
{{- end }}
{{- if and $agent.devicePluginCdi (semverCompare "<1.29.0-0" $version) }}
{{- fail (printf "agent.devicePluginCdi needs Kubernetes 1.29 or newer; this is %s" $version) }}
{{- end }}
{{- $names := list }}{{ range splitList "," .Values.extender.policy }}{{ $names = append $names (regexReplaceAll "(-strict)?(=.*)?$" (nospace .) "") }}{{ end }}
{{- if ne (len $names) (len (uniq $names)) }}
{{- fail (printf "extender.policy names a policy twice: %s" .Values.extender.policy) }}
{{- end }}
{{- end -}}

{{/* What all names begin with. */}}
{{- define "gpu-manager.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $made := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $made .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels by which a part's pods are found. Called with a dict: root, part. */}}
{{- define "gpu-manager.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{/* Labels of a part's pods: nothing that changes with the chart, or every upgrade would replace them. */}}
{{- define "gpu-manager.podLabels" -}}
{{ include "gpu-manager.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of an object of a part. */}}
{{- define "gpu-manager.labels" -}}
{{ include "gpu-manager.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name and labels of an object of a part: `metadata` without its namespace. */}}
{{- define "gpu-manager.named" -}}
name: {{ include "gpu-manager.fullname" .root }}-{{ .part }}
labels:
  {{- include "gpu-manager.labels" . | nindent 2 }}
{{- end -}}

{{- define "gpu-manager.metadata" -}}
namespace: {{ .root.Release.Namespace }}
{{ include "gpu-manager.named" . }}
{{- end -}}

{{/* Not empty where GPUs are asked for with ResourceClaims. */}}
{{- define "gpu-manager.claims" -}}
{{- if or (ne .Values.agent.interface "device-plugin") (ne .Values.webhook.claims "never") }}claims{{ end -}}
{{- end -}}

{{- define "gpu-manager.image" -}}
{{- with .Values.image -}}
{{- $name := ternary .repository (printf "%s/%s" .registry .repository) (empty .registry) -}}
{{- if .digest }}{{ printf "%s@%s" $name .digest }}{{ else }}{{ printf "%s:%s" $name (default $.Chart.AppVersion .tag) }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "gpu-manager.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "gpu-manager.metadata" . | nindent 2 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: true
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Binds a role of the part's name to its account. Called with a dict: root, part, kind, and for roles elsewhere name, namespace. */}}
{{- define "gpu-manager.binding" -}}
{{- $full := include "gpu-manager.fullname" .root -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ default (printf "%s-%s" $full .part) .name }}
  {{- if eq .kind "Role" }}
  namespace: {{ default .root.Release.Namespace .namespace }}
  {{- end }}
  labels:
    {{- include "gpu-manager.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ default .kind .roleKind }}
  name: {{ default (default (printf "%s-%s" $full .part) .name) .role }}
subjects:
  - kind: ServiceAccount
    name: {{ $full }}-{{ .part }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* Where pods of a Deployment go. Called with a dict: root, part, values. */}}
{{- define "gpu-manager.placement" -}}
priorityClassName: {{ .values.priorityClassName | quote }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "gpu-manager.selector" $ | nindent 8 }}
  {{- end }}
{{- end -}}

{{/* Not empty on OpenShift. */}}
{{- define "gpu-manager.openshift" -}}
{{- if or (eq .Values.openshift "always") (and (eq .Values.openshift "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) }}openshift{{ end -}}
{{- end -}}

{{/* Pod security context of pods that need nothing of their node. On OpenShift each namespace has its own range of IDs. */}}
{{- define "gpu-manager.plainPod" -}}
runAsNonRoot: true
{{- if not (include "gpu-manager.openshift" .) }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532 # may read the mounted Secret
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gpu-manager.plainContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "gpu-manager.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "gpu-manager.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "gpu-manager.selector" . | nindent 6 }}
{{- end -}}

{{/* cert-manager's: a Certificate for a Service, and an issuer where none is named. Called with a dict: root, part, tls, secret. */}}
{{- define "gpu-manager.certificate" -}}
{{- $full := printf "%s-%s" (include "gpu-manager.fullname" .root) .part -}}
{{- if not .tls.issuerRef }}
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  {{- include "gpu-manager.metadata" . | nindent 2 }}
spec:
  selfSigned: {}
---
{{- end }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "gpu-manager.metadata" . | nindent 2 }}
spec:
  secretName: {{ .secret }}
  dnsNames:
    - {{ printf "%s.%s.svc" $full .root.Release.Namespace }}
    - {{ printf "%s.%s.svc.cluster.local" $full .root.Release.Namespace }}
    - localhost # for `kubectl port-forward`
  ipAddresses: [127.0.0.1]
  usages: [server auth]
  privateKey: {algorithm: ECDSA, size: 256}
  issuerRef:
    {{- if .tls.issuerRef }}
    {{- toYaml .tls.issuerRef | nindent 4 }}
    {{- else }}
    name: {{ $full }}
    kind: Issuer
    {{- end }}
{{- end -}}

{{- define "gpu-manager.extenderSecret" -}}
{{ default (printf "%s-extender-tls" (include "gpu-manager.fullname" .)) .Values.extender.tls.secretName }}
{{- end -}}

{{- define "gpu-manager.clientSecret" -}}
{{ default (printf "%s-extender-client" (include "gpu-manager.fullname" .)) .Values.extender.clientCertificate.secretName }}
{{- end -}}

{{/* Whether kube-scheduler has to show a certificate: `true`, or nothing. */}}
{{- define "gpu-manager.clientRequired" -}}
{{- $required := .Values.extender.clientCertificate.required -}}
{{- if and (ne .Values.extender.tls.source "none") (or (eq $required "always") (and (eq $required "auto") .Values.scheduler.enabled)) -}}
true
{{- end -}}
{{- end -}}

{{- define "gpu-manager.webhookSecret" -}}
{{ default (printf "%s-webhook" (include "gpu-manager.fullname" .)) .Values.webhook.tls.secretName }}
{{- end -}}

{{/* host:port by which others find the extender. */}}
{{- define "gpu-manager.extenderUrl" -}}
{{- $scheme := ternary "http" "https" (eq .Values.extender.tls.source "none") -}}
{{ printf "%s://%s-extender.%s.svc:%v/scheduler" $scheme (include "gpu-manager.fullname" .) .Release.Namespace .Values.extender.port }}
{{- end -}}

{{- define "gpu-manager.quotaFlag" -}}
{{ ternary "none" (printf "%s/%s" .Values.quota.namespace .Values.quota.configMap) (empty .Values.quota.configMap) }}
{{- end -}}

{{/* What kube-scheduler is told of the extender: one entry of `extenders`. */}}
{{- define "gpu-manager.extenderEntry" -}}
urlPrefix: {{ include "gpu-manager.extenderUrl" . }}
filterVerb: filter
prioritizeVerb: prioritize
bindVerb: bind
preemptVerb: preempt
weight: {{ .Values.scheduler.extenderWeight }}
{{- include "gpu-manager.extenderTls" . }}
nodeCacheCapable: true
httpTimeout: 15s # a bind may take 8 s where the API server is slow
ignorable: false # without the extender pods with GPUs wait, others are scheduled
managedResources:
  - {name: tencent.com/vcuda-core, ignoredByScheduler: false}
  - {name: tencent.com/vcuda-memory, ignoredByScheduler: false}
{{- end -}}

{{- define "gpu-manager.extenderTls" -}}
{{- if ne .Values.extender.tls.source "none" }}
enableHTTPS: true
tlsConfig:
  caFile: /etc/kubernetes/gpu-manager/tls/ca.crt
  {{- if include "gpu-manager.clientRequired" . }}
  certFile: /etc/kubernetes/gpu-manager/client/tls.crt
  keyFile: /etc/kubernetes/gpu-manager/client/tls.key
  {{- end }}
{{- end }}
{{- end -}}

{{/* For pods with claims, a second entry: it scores nodes and decides nothing else. */}}
{{- define "gpu-manager.claimsEntry" -}}
urlPrefix: {{ include "gpu-manager.extenderUrl" . }}
prioritizeVerb: prioritize-claims
weight: {{ .Values.scheduler.extenderWeight }}
{{- include "gpu-manager.extenderTls" . }}
nodeCacheCapable: true
httpTimeout: 5s
ignorable: true # without it claims are placed less tightly
{{- end -}}

{{- define "gpu-manager.podMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  {{- include "gpu-manager.metadata" . | nindent 2 }}
  {{- with .root.Values.monitoring.podMonitors.labels }}
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "gpu-manager.selector" . | nindent 6 }}
  podMetricsEndpoints:
    - path: /metrics
      {{- with .port }}
      port: {{ . }}
      {{- end }}
      interval: {{ .root.Values.monitoring.podMonitors.interval }}
      honorLabels: true # namespace, pod and container are of whom a series tells
      scheme: {{ .scheme }}
      relabelings: # as the rules and dashboards expect
        - {targetLabel: job, replacement: gpu-manager-{{ .part }}}
        - {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}
        {{- with .number }}
        # Its pods name no port, so that two of them may be on one node.
        - {sourceLabels: [__meta_kubernetes_pod_ip], targetLabel: __address__, replacement: "$1:{{ . }}"}
        {{- end }}
      {{- with .tlsConfig }}
      tlsConfig:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}

{{/* By which the doctor looks where the agent does: flags of the agent's places, where they are not its defaults. */}}
{{- define "gpu-manager.doctorFlags" -}}
{{- $flags := list (print "--driver-root=" (ternary "/host" .Values.driver.root (eq .Values.driver.root "/"))) }}
{{- if ne .Values.driver.deviceDirectory "/dev" }}
{{- $flags = append $flags (print "--device-directory=" .Values.driver.deviceDirectory) }}
{{- end }}
{{- if ne .Values.kubelet.root "/var/lib/kubelet" }}
{{- $flags = append $flags (print "--device-plugin-path=" .Values.kubelet.root "/device-plugins") }}
{{- $flags = append $flags (print "--pod-resources-socket=" .Values.kubelet.root "/pod-resources/kubelet.sock") }}
{{- $flags = append $flags (print "--pods-api-socket=" .Values.kubelet.root "/pods-api/pods-api.sock") }}
{{- end }}
{{- if ne .Values.containerRuntime.socket "/run/containerd/containerd.sock" }}
{{- $flags = append $flags (print "--container-runtime-endpoint=unix://" .Values.containerRuntime.socket) }}
{{- end }}
{{- if ne .Values.agent.stateDirectory "/etc/gpu-manager" }}
{{- range $flag, $name := dict "virtual-manager-path" "vm" "checkpoint-path" "checkpoint" "volume-base" "vdriver" }}
{{- $flags = append $flags (printf "--%s=%s/%s" $flag $.Values.agent.stateDirectory $name) }}
{{- end }}
{{- end }}
{{- join " " $flags }}
{{- end -}}

{{/* In expressions of policies: the node of which the caller's token is. */}}
{{- define "gpu-manager.ownNode" -}}
- {name: ownNode, expression: "request.userInfo.?extra['authentication.kubernetes.io/node-name'].orValue([''])[0]"}
{{- end -}}

{{/* What is compared of any object that is changed. changed: keys of annotations. */}}
{{- define "gpu-manager.metadataVariables" -}}
- {name: oldAnnotations, expression: "oldObject.metadata.?annotations.orValue({})"}
- {name: newAnnotations, expression: "object.metadata.?annotations.orValue({})"}
- {name: oldLabels, expression: "oldObject.metadata.?labels.orValue({})"}
- {name: newLabels, expression: "object.metadata.?labels.orValue({})"}
- {name: sameLabels, expression: "variables.newLabels == variables.oldLabels"}
- name: sameMetadata
  expression: >-
    object.metadata.?finalizers == oldObject.metadata.?finalizers && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
- name: changed
  expression: >-
    (variables.newAnnotations.map(k, k) + variables.oldAnnotations.map(k, k)).filter(k, !(k in variables.newAnnotations
    && k in variables.oldAnnotations && variables.newAnnotations[k] == variables.oldAnnotations[k]))
{{- end -}}

{{/* And of pods. gpus: whether it asks for ours. */}}
{{- define "gpu-manager.podVariables" -}}
{{ include "gpu-manager.metadataVariables" . }}
- name: gpus
  expression: >-
    (oldObject.spec.containers + oldObject.spec.?initContainers.orValue([]))
    .exists(c, c.?resources.?limits.orValue({}).exists(r, r.startsWith('tencent.com/vcuda-')))
- name: labelsBesideRole
  expression: >-
    (variables.newLabels.map(k, k) + variables.oldLabels.map(k, k)).all(k, k == 'tencent.com/extender-role'
    || (k in variables.newLabels && k in variables.oldLabels && variables.newLabels[k] == variables.oldLabels[k]))
{{- end -}}

{{/* Puts a policy into force. Called with a dict: root, part, name. */}}
{{- define "gpu-manager.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "gpu-manager.labels" . | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end -}}
