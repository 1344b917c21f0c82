"""Claims, templates and classes, for the tests of what is said of them."""

from collections.abc import Sequence
from typing import Any

from gpumanager.kube.vcuda_config import API_VERSION, KIND
from gpumanager.names import CLAIM_DEVICE_CLASS, CLAIM_DRIVER

RESOURCE_API = "resource.k8s.io/v1"


def opaque(**parameters: Any) -> dict[str, Any]:
    """A row of `config`."""
    given = {"apiVersion": API_VERSION, "kind": KIND, **parameters}
    return {"opaque": {"driver": CLAIM_DRIVER, "parameters": given}}


def exactly(device_class: str = CLAIM_DEVICE_CLASS, **fields: Any) -> dict[str, Any]:
    return {"deviceClassName": device_class, **fields}


def resource_claim(
    requests: Sequence[Any] = (), config: Sequence[Any] = (), kind: str = "ResourceClaim"
) -> dict[str, Any]:
    """kind: a ResourceClaimTemplate has the same one level deeper."""
    rows = list(requests) or [{"name": "gpu", "exactly": exactly()}]
    spec = {"devices": {"requests": rows, "config": list(config)}}
    return {
        "apiVersion": RESOURCE_API,
        "kind": kind,
        "metadata": {"name": "c", "namespace": "default"},
        "spec": spec if kind == "ResourceClaim" else {"spec": spec},
    }


def device_class(config: Sequence[Any] = ()) -> dict[str, Any]:
    return {
        "apiVersion": RESOURCE_API,
        "kind": "DeviceClass",
        "metadata": {"name": "bursting"},
        "spec": {"config": list(config)},
    }
