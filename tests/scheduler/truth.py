"""What pods really take of the GPUs their plans name, counted from their objects alone.

It shares nothing with the code under test: at each moment of a pod's life those containers run that
Kubernetes says do, and each GPU has to hold all of them at the worst of their moments.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from gpumanager.names import ANNOTATION_PLAN, VCORE, VMEMORY

GPU_BLOCKS = 64
"""Of the 16 GiB that the machines of these tests have."""


def overfull(pods: Iterable[Any]) -> list[str]:
    """GPUs of which more is promised than there is; bound pods that have not ended count."""
    cores: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for pod in pods:
        if pod["spec"].get("nodeName") and pod["status"]["phase"] not in {"Succeeded", "Failed"}:
            for gpu, (most_cores, most_memory) in worst(pod).items():
                cores[gpu] += most_cores
                memory[gpu] += most_memory
    over = [gpu for gpu, amount in cores.items() if amount > 100]
    return over + [gpu for gpu, amount in memory.items() if amount > GPU_BLOCKS]


def worst(pod: Any) -> dict[str, tuple[int, int]]:
    """By GPU: the most cores and blocks at one moment."""
    found: dict[str, tuple[int, int]] = {}
    for moment in moments(pod):
        used: dict[str, tuple[int, int]] = {}
        for container in moment:
            for gpu, cores, blocks in parts(pod, container):
                had = used.get(gpu, (0, 0))
                used[gpu] = had[0] + cores, had[1] + blocks
        for gpu, amount in used.items():
            had = found.get(gpu, (0, 0))
            found[gpu] = max(had[0], amount[0]), max(had[1], amount[1])
    return found


def moments(pod: Any) -> Iterator[list[Any]]:
    """Containers that run together."""
    running: list[Any] = []
    for container in pod["spec"].get("initContainers") or []:
        yield [*running, container]
        if container.get("restartPolicy") == "Always":
            running.append(container)
    yield [*running, *pod["spec"]["containers"]]


def parts(pod: Any, container: Any) -> Iterator[tuple[str, int, int]]:
    """GPU, cores and blocks of one container, by its pod's plan."""
    limits = container["resources"]["limits"]
    cores, blocks = int(limits[VCORE]), int(limits[VMEMORY])
    planned = json.loads(pod["metadata"]["annotations"][ANNOTATION_PLAN])
    gpus = planned["containers"][container["name"]]["gpus"]
    assert len(gpus) == len(set(gpus)) == max(1, cores // 100)
    for gpu in gpus:
        yield (gpu, 100, GPU_BLOCKS) if cores >= 100 else (gpu, cores, blocks)
