"""Pods and reviews for the tests of the webhook, and a JSON patch carried out."""

import base64
import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.webhook.nodes import NodeKind
from gpumanager.units import GIB, Bytes


def container(cores: Any = 30, blocks: Any = 8, name: str = "main", **more: Any) -> dict[str, Any]:
    """None: the resource is not named. Requests are as the API server defaults them."""
    limits = {
        key: str(amount)
        for key, amount in ((VCORE, cores), (VMEMORY, blocks))
        if amount is not None
    }
    resources = {"limits": limits, "requests": dict(limits)}
    return {"name": name, "image": "none", "resources": resources, **more}


def pod(
    *containers: Any, annotations: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """With one container of 30 cores and 8 blocks where none is given."""
    metadata: dict[str, Any] = {"name": "p", "namespace": "default"}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    rows = list(containers) or [container()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "default-scheduler", "containers": rows, **spec},
    }


def review(made: Any, *, version: str = "v1", **request: Any) -> dict[str, Any]:
    """As a kube-apiserver sends it for a new pod."""
    return {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0d3a2c6e",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "somebody"},
            "object": made,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            **request,
        },
    }


def response(body: bytes) -> Any:
    """What was answered, with its patch taken apart."""
    found = json.loads(body)["response"]
    if "patch" in found:
        found["patch"] = json.loads(base64.b64decode(found["patch"]))
    return found


def applied(made: Any, steps: Iterable[Any]) -> Any:
    """The pod after the patch, by RFC 6902; raises KeyError where it does not fit the pod."""
    changed = copy.deepcopy(made)
    for step in steps:
        *way, last = [
            word.replace("~1", "/").replace("~0", "~") for word in step["path"][1:].split("/")
        ]
        target = changed
        for word in way:
            target = target[int(word)] if isinstance(target, list) else target[word]
        key = int(last) if isinstance(target, list) else last
        if step["op"] == "remove":
            del target[key]
        else:
            target[key] = copy.deepcopy(step["value"])
    return changed


def node_topology(*sizes: int) -> Topology:
    """A node with GPUs of so many GiB."""
    gpus = [
        Gpu(
            index=place,
            minor=place,
            uuid=GpuUUID(f"GPU-{place}"),
            bus_id=f"0000:{place:02x}:00.0",
            model="NVIDIA A100",
            memory=Bytes(size * GIB),
            numa_node=0,
        )
        for place, size in enumerate(sizes)
    ]
    bonds = [[None if a == b else Bond(Level.PIX, 0) for b in gpus] for a in gpus]
    return topology(gpus, bonds)


def node_kind(*sizes: int) -> NodeKind:
    return NodeKind.of(node_topology(*sizes))
