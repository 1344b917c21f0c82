"""The fields of pods, as API servers of today know them.

A pod with any other is refused, as `kubectl apply` refuses it: so `limit` instead of
`limits` is an error, not a pod without a GPU. Most of these mean nothing to a simulated node.
"""

from collections.abc import Mapping
from typing import Final

POD: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
METADATA: Final = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
SPEC: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "evictionResponders",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
        "workloadRef",
    }
)
CONTAINER: Final = frozenset(
    {
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "resources",
        "restartPolicy",
        "restartPolicyRules",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    }
)
VARIABLE: Final = frozenset({"name", "value", "valueFrom"})
RESOURCES: Final = frozenset({"claims", "limits", "requests"})
RESOURCE_CLAIM: Final = frozenset({"name", "request"})
POD_CLAIM: Final = frozenset({"name", "resourceClaimName", "resourceClaimTemplateName"})
FIELD: Final = frozenset({"apiVersion", "fieldPath"})
KEY: Final = frozenset({"key", "name", "optional"})
ENV_FROM: Final = frozenset({"configMapRef", "prefix", "secretRef"})
_REPLICAS: Final = ("minReadySeconds", "replicas", "selector", "template")
WORKLOADS: Final[Mapping[str, frozenset[str]]] = {
    "CronJob": frozenset(
        {
            "concurrencyPolicy",
            "failedJobsHistoryLimit",
            "jobTemplate",
            "schedule",
            "startingDeadlineSeconds",
            "successfulJobsHistoryLimit",
            "suspend",
            "timeZone",
        }
    ),
    "DaemonSet": frozenset(
        {"minReadySeconds", "revisionHistoryLimit", "selector", "template", "updateStrategy"}
    ),
    "Deployment": frozenset(
        {*_REPLICAS, "paused", "progressDeadlineSeconds", "revisionHistoryLimit", "strategy"}
    ),
    "Job": frozenset(
        {
            "activeDeadlineSeconds",
            "backoffLimit",
            "backoffLimitPerIndex",
            "completionMode",
            "completions",
            "managedBy",
            "manualSelector",
            "maxFailedIndexes",
            "parallelism",
            "podFailurePolicy",
            "podReplacementPolicy",
            "scheduling",
            "selector",
            "successPolicy",
            "suspend",
            "template",
            "ttlSecondsAfterFinished",
        }
    ),
    "ReplicaSet": frozenset(_REPLICAS),
    "StatefulSet": frozenset(
        {
            *_REPLICAS,
            "ordinals",
            "persistentVolumeClaimRetentionPolicy",
            "podManagementPolicy",
            "revisionHistoryLimit",
            "serviceName",
            "updateStrategy",
            "volumeClaimTemplates",
        }
    ),
}
"""Fields of the spec of what makes pods by a template."""
