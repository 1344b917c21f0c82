"""Who holds how much of which GPU, by what the API server says of nodes and pods alone.

An account of its own: nothing of what placed the pods counts here.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_INVENTORY,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
    VCORE,
    VMEMORY,
)
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK
from tests.e2e.cluster.api_client import Object

ENDED: Final = {"Succeeded", "Failed"}
Amount = tuple[int, int]
"""Cores and blocks."""


@dataclass
class Accounts:
    """room: what each GPU has, by node and UUID. cores, blocks: what is held of it.

    bound, waiting: pods. elsewhere: those of the bound that were given other GPUs than planned.
    """

    room: dict[tuple[str, str], Amount] = field(default_factory=dict)
    cores: Counter[tuple[str, str]] = field(default_factory=Counter)
    blocks: Counter[tuple[str, str]] = field(default_factory=Counter)
    bound: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    waiting: dict[str, Amount] = field(default_factory=dict)

    @property
    def overbooked(self) -> list[tuple[str, str]]:
        """GPUs of which more is held than they have; also those that are not there."""
        return [gpu for gpu in {*self.room, *self.cores} if min(self._left(gpu)) < 0]

    @property
    def overlooked(self) -> list[str]:
        """Pods that wait though a GPU has room for them. Of one container, and a GPU at most."""
        return [
            name
            for name, asked in self.waiting.items()
            if any(self._has_room(gpu, asked) for gpu in self.room)
        ]

    def _has_room(self, gpu: tuple[str, str], asked: Amount) -> bool:
        cores, blocks = self._left(gpu)
        return cores >= asked[0] and blocks >= asked[1]

    def _left(self, gpu: tuple[str, str]) -> Amount:
        cores, blocks = self.room.get(gpu, (0, 0))
        return cores - self.cores[gpu], blocks - self.blocks[gpu]


def accounts(nodes: Sequence[Object], pods: Sequence[Object]) -> Accounts:
    """Of one moment. Pods of which nobody knows which GPUs they have raise KeyError."""
    found = Accounts()
    minors: dict[tuple[str, int], str] = {}
    for node in nodes:
        for gpu in _inventory(node):
            name = node["metadata"]["name"]
            found.room[name, gpu["uuid"]] = CORES_PER_GPU, gpu["memory"] // MEMORY_BLOCK
            minors[name, gpu["minor"]] = gpu["uuid"]
    for pod in (one for one in pods if one["status"]["phase"] not in ENDED):
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if not node:
            found.waiting[name] = amount(pod["spec"]["containers"][0])
            continue
        found.bound.append(name)
        given = granted(pod, minors)
        if given != planned(pod):
            found.elsewhere.append(name)
        for container, uuids in given.items():
            (one,) = (each for each in pod["spec"]["containers"] if each["name"] == container)
            cores, blocks = amount(one)
            for uuid in uuids:
                found.cores[node, uuid] += min(cores, CORES_PER_GPU)
                found.blocks[node, uuid] += blocks
    return found


def planned(pod: Object) -> dict[str, set[str]]:
    """The GPUs of each container by its plan, UUIDs."""
    plan = json.loads(pod["metadata"]["annotations"][ANNOTATION_PLAN])["containers"]
    return {name: set(one["gpus"]) for name, one in plan.items()}


def granted(pod: Object, minors: Mapping[tuple[str, int], str]) -> dict[str, set[str]]:
    """Those that the node gave it, by their minors; as planned where it has not said yet."""
    said, node = pod["metadata"]["annotations"], pod["spec"]["nodeName"]
    if said[ANNOTATION_GPU_ASSIGNED] != "true":
        return planned(pod)
    found = {}
    for place, one in enumerate(pod["spec"]["containers"]):
        words = said[f"{ANNOTATION_PREDICATE_GPU_INDEX}{place}"].split(",")
        found[one["name"]] = {minors[node, int(word)] for word in words}
    return found


def amount(container: Mapping[str, Any]) -> Amount:
    limits = container["resources"]["limits"]
    return int(limits[VCORE]), int(limits.get(VMEMORY, 0))


def _inventory(node: Object) -> list[dict[str, Any]]:
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION_INVENTORY)
    return list(json.loads(text)["gpus"]) if text else []
