"""Slices, claims and pods in few words."""

from typing import Any

DRIVER = "gpu.tencent.com"
GI = "Gi"


def gpu(index: int, **attributes: int) -> dict[str, Any]:
    """A GPU of 100 cores and 16 GiB; four to a NUMA node, two to an NVLink pair."""
    cores = {"default": "100", "validRange": {"min": "1", "step": "1", "max": "100"}}
    memory = {"default": "16Gi", "validRange": {"min": "256Mi", "step": "256Mi", "max": "16Gi"}}
    known = {"numa": index // 4, "nvlink": index // 2, **attributes}
    return {
        "name": f"gpu-{index}",
        "allowMultipleAllocations": True,
        "attributes": {
            "uuid": {"string": f"GPU-{index}"},
            **{name: {"int": value} for name, value in known.items()},
        },
        "capacity": {
            "cores": {"value": "100", "requestPolicy": cores},
            "memory": {"value": "16Gi", "requestPolicy": memory},
        },
    }


def slice_of(node: str, *devices: dict[str, Any], name: str = "", **pool: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name or f"{node}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1, **pool},
            "devices": list(devices),
        },
    }


def eight(node: str = "n", order: tuple[int, ...] = tuple(range(8))) -> dict[str, Any]:
    return slice_of(node, *(gpu(index) for index in order))


def device_class(name: str = "gpu") -> dict[str, Any]:
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors}}


def asked(cores: int | None = None, memory: str | None = None, **more: Any) -> dict[str, Any]:
    wanted = {"cores": str(cores) if cores else None, "memory": memory}
    requests = {name: value for name, value in wanted.items() if value}
    capacity = {"capacity": {"requests": requests}} if requests else {}
    return {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        **capacity,
        **more,
    }


def request(name: str = "gpu", *args: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "exactly": asked(*args, **more)}


def claim(*requests: dict[str, Any], name: str = "c", **devices: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests), **devices}}}


def node(name: str = "n") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}


def pod(name: str, claim_name: str = "", template: str = "", **spec: Any) -> dict[str, Any]:
    used = (
        {"resourceClaimName": claim_name} if claim_name else {"resourceClaimTemplateName": template}
    )
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
        "spec": {"resourceClaims": [{"name": "gpu", **used}], **spec},
    }
