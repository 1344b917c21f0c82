"""Objects as the API server takes them: fields and types by the models of the Kubernetes client.

An object with any other is refused, as `kubectl apply` refuses it: so `limit` instead of `limits`
is an error, not a pod without a GPU. Most of these fields mean nothing to a simulated node.
"""

from typing import Any, Final

from kubernetes.aio import client

from gpumanager.sim.manifest.yaml_text import Fields, Mark, typed

MODELS: Final = {
    **{kind: f"V1{kind}" for kind in ("Pod", "ConfigMap", "Secret", "Job", "CronJob", "DaemonSet")},
    **{kind: f"V1{kind}" for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DeviceClass")},
    "ResourceClaim": "ResourceV1ResourceClaim",
    "ResourceClaimTemplate": "V1ResourceClaimTemplate",
}
"""By kind."""
_QUANTITIES: Final = {
    ("V1ResourceRequirements", "limits"),
    ("V1ResourceRequirements", "requests"),
    ("V1CapacityRequirements", "requests"),
    ("V1PodSpec", "overhead"),
    ("V1EmptyDirVolumeSource", "sizeLimit"),
    ("V1ResourceFieldSelector", "divisor"),
    ("V1NodeAllocatableMappedResources", "quantity"),
}
"""Strings for the models, which may be numbers too."""


def read_fields(fields: Fields, kind: str, *, strict: bool = True) -> None:
    """Give the fields of an object their types, at any depth. Raises InputError for an unknown
    field; not in a status, because only an API server writes it, which may be a newer one."""
    known: Any = getattr(client, kind)
    types = {known.attribute_map[name]: one for name, one in known.openapi_types.items()}
    if strict:
        fields.check_known(types)
    for name, value in fields.items():
        one = types.get(name, "object")
        if (kind, name) in _QUANTITIES:
            one = "Dict[str, quantity]" if "Dict" in one else "quantity"
        fields[name] = _read(value, one, fields.places[name], strict and name != "status")


def _read(value: Any, kind: str, place: Mark, strict: bool) -> Any:  # noqa: FBT001
    outer, _, inner = kind.removesuffix("]").partition("[")
    if outer == "List":
        rows = typed(value, "list", place)
        rows[:] = [_read(one, inner, rows.places[at], strict) for at, one in enumerate(rows)]
    elif outer == "Dict":
        fields, of = typed(value, "dict", place), inner.removeprefix("str, ")
        for name, one in fields.items():
            fields[name] = _read(one, of, fields.places[name], strict)
    elif hasattr(client, kind):
        read_fields(typed(value, "dict", place), kind, strict=strict)
    else:
        return typed(value, {"datetime": "object", "bytes": "str"}.get(kind, kind), place)
    return value
