"""The fields that the API knows, by the models of the Kubernetes client.

An object with any other is refused, as `kubectl apply` refuses it: so `limit` instead of `limits`
is an error, not a pod without a GPU. Most of these fields mean nothing to a simulated node.
"""

from typing import Any, Final

from kubernetes.aio import client

from gpumanager.sim.manifest.yaml_text import Value

MODELS: Final = {
    **{kind: f"V1{kind}" for kind in ("Pod", "ConfigMap", "Secret", "Job", "CronJob", "DaemonSet")},
    **{kind: f"V1{kind}" for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DeviceClass")},
    "ResourceClaim": "ResourceV1ResourceClaim",
    "ResourceClaimTemplate": "V1ResourceClaimTemplate",
}
"""By kind."""


def check_fields(value: Value, model: str) -> None:
    """Raise InputError for a field that the API does not know, at any depth; a status is not
    looked at, because only an API server writes it."""
    known: Any = getattr(client, model.removeprefix("List[").removesuffix("]"), None)
    if known is None or value.empty:
        return
    if model.startswith("List["):
        for item in value.items():
            check_fields(item, known.__name__)
        return
    types = {known.attribute_map[name]: kind for name, kind in known.openapi_types.items()}
    for name, field in value.fields(types).items():
        if name != "status":
            check_fields(field, types[name])
