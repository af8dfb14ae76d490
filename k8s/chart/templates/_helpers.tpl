{{- define "flowsched.fullname" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "flowsched.selector" -}}
app.kubernetes.io/name: flowsched
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end -}}

{{- define "flowsched.labels" -}}
{{ include "flowsched.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: flowsched
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "flowsched.config" -}}
{{ toYaml .Values.config }}
{{- end -}}

{{- /* The lease that the configuration names. */ -}}
{{- define "flowsched.lease" -}}
{{- dig "leaderElection" "resourceName" "flowsched" .Values.config -}}
{{- end -}}

{{- /* The number in an address like ":8081". */ -}}
{{- define "flowsched.port" -}}
{{- splitList ":" . | last -}}
{{- end -}}

{{- /* A ClusterRole of one feature and its binding: (dict "root" $ "feature" name "rules" rules). */ -}}
{{- define "flowsched.role" -}}
{{- $name := printf "%s-%s" (include "flowsched.fullname" .root) .feature -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels: {{- include "flowsched.labels" .root | nindent 4 }}
rules: {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{- include "flowsched.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "flowsched.fullname" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "flowsched.agent.name" -}}
{{ include "flowsched.fullname" . }}-agent
{{- end -}}

{{- define "flowsched.agent.selector" -}}
app.kubernetes.io/name: flowsched
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end -}}

{{- define "flowsched.agent.labels" -}}
{{ include "flowsched.agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: flowsched
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
