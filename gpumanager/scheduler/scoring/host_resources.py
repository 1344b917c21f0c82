"""What a pod asks of its node's own CPU and memory, counted as Kubernetes counts it. Pure.

kube-scheduler decides whether that fits; here it weighs, because a GPU whose node has no CPU left
is of no use to anybody. So what cannot be read counts as nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.kube.pod import LARGEST, amounts


@dataclass(frozen=True, slots=True)
class HostResources:
    """CPU and memory of a node, or of those who use it."""

    cpu_milli: int = 0
    memory_mib: int = 0

    def __add__(self, other: "HostResources") -> "HostResources":
        return HostResources(self.cpu_milli + other.cpu_milli, self.memory_mib + other.memory_mib)

    def __sub__(self, other: "HostResources") -> "HostResources":
        return HostResources(self.cpu_milli - other.cpu_milli, self.memory_mib - other.memory_mib)


NOTHING: Final = HostResources()
BOUNDLESS: Final = HostResources(LARGEST, LARGEST)
"""Of a node that does not say what it has."""


def allocatable(node: Any) -> HostResources:
    """Of a node object; raises TypeError, AttributeError."""
    said = (node.get("status") or {}).get("allocatable")
    return HostResources(*amounts(said)) if said else BOUNDLESS


def total(hosts: Iterable[HostResources]) -> HostResources:
    cpu = memory = 0
    for host in hosts:
        cpu += host.cpu_milli
        memory += host.memory_mib
    return HostResources(cpu, memory)
