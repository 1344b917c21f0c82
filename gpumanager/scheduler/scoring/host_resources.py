"""What a pod asks of its node's own CPU and memory, counted as Kubernetes counts it. Pure.

kube-scheduler decides whether that fits; here it weighs, because a GPU whose node has no CPU left
is of no use to anybody. So what cannot be read counts as nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from gpumanager.kubelet import pods
from gpumanager.kubelet.pods import PodView
from gpumanager.units import MIB

_QUANTITY: Final = re.compile(r"(\d{1,18}(?:\.\d{0,18})?)([numkMGTPE]|[KMGTPE]i|[eE]\d{1,2})?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SCALES: Final = {
    **{letter: 10.0**power for letter, power in _DECIMAL.items()},
    **{f"{letter}i": 2.0 ** (10 * power) for power, letter in enumerate("KMGTPE", 1)},
}
LONGEST: Final = 64
"""Letters of a quantity: more is none."""
LARGEST: Final = 10**9
"""Thousandths of a CPU, or MiB: more is a mistake, and is counted as this."""


@dataclass(frozen=True, slots=True)
class Host:
    """CPU and memory of a node, or of those who use it."""

    cpu_milli: int = 0
    memory_mib: int = 0

    def __add__(self, other: "Host") -> "Host":
        return Host(self.cpu_milli + other.cpu_milli, self.memory_mib + other.memory_mib)

    def __sub__(self, other: "Host") -> "Host":
        return Host(self.cpu_milli - other.cpu_milli, self.memory_mib - other.memory_mib)


NOTHING: Final = Host()
BOUNDLESS: Final = Host(LARGEST, LARGEST)
"""Of a node that does not say what it has."""


def read_pod(item: Any) -> PodView:
    """A pod of its JSON object, with what it asks of its node.

    Raises KeyError, TypeError, AttributeError where it is none.
    """
    host = host_of(item.get("spec") or {})
    return pods.read_pod(item, host.cpu_milli, host.memory_mib)


def allocatable(node: Any) -> Host:
    """Of a node object; raises TypeError, AttributeError."""
    said = (node.get("status") or {}).get("allocatable")
    return _amounts(said) if said else BOUNDLESS


def host_of(spec: Any) -> Host:
    """Containers and sidecars together, or an init container beside the sidecars before it, if that
    is more; and the overhead of the runtime. What is said of the pod as a whole counts instead."""
    most, sidecars = NOTHING, NOTHING
    for container in spec.get("initContainers") or []:
        asked = _asked(container)
        most = _most(most, sidecars + asked)
        if container.get("restartPolicy") == "Always":
            sidecars += asked
    together = sum(map(_asked, spec.get("containers") or []), sidecars)
    whole = ((spec.get("resources") or {}).get("requests")) or {}
    found = _instead(_most(most, together), whole)
    return _shared(found + _amounts(spec.get("overhead") or {}))


def total(hosts: Iterable[Host]) -> Host:
    cpu = memory = 0
    for host in hosts:
        cpu += host.cpu_milli
        memory += host.memory_mib
    return Host(cpu, memory)


def _asked(container: Any) -> Host:
    """A limit where no request stands, as the API server has it."""
    resources = container.get("resources") or {}
    asked, limits = resources.get("requests") or {}, resources.get("limits") or {}
    return _amounts(limits | asked)


def _amounts(said: Any) -> Host:
    cpu, memory = said.get("cpu"), said.get("memory")
    if cpu is None and memory is None:
        return NOTHING
    milli = min(LARGEST, round(_read(cpu) * 1000))
    return Host(milli, min(LARGEST, round(_read(memory) / MIB)))


def _read(said: Any) -> float:
    text = str(said or 0)
    return _quantity(text) if len(text) <= LONGEST else 0.0


def _instead(host: Host, whole: Any) -> Host:
    said = _amounts(whole)
    return Host(
        said.cpu_milli if "cpu" in whole else host.cpu_milli,
        said.memory_mib if "memory" in whole else host.memory_mib,
    )


def _most(one: Host, other: Host) -> Host:
    return Host(max(one.cpu_milli, other.cpu_milli), max(one.memory_mib, other.memory_mib))


@lru_cache(maxsize=4096)
def _shared(host: Host) -> Host:
    """Pods of a kind share one."""
    return host


@lru_cache(maxsize=4096)
def _quantity(text: str) -> float:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return 0.0
    number, suffix = float(match[1]), match[2] or ""
    if suffix[:1] in {"e", "E"} and suffix[1:].isdigit():
        return number * 10.0 ** int(suffix[1:])
    return number * _SCALES.get(suffix, 1.0)
