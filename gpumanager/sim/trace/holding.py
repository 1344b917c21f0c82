"""What is free on a node of a trace once a pod has come, and once it has left again. Pure."""

from bisect import insort

from gpumanager.placement.policy import Gpus, Positions, take
from gpumanager.placement.values import FreeGpu, FreeNode, PodRequest
from gpumanager.sim.trace.values import TraceNode, kind_of, kinds_on
from gpumanager.units import CORES_PER_GPU

Given = tuple[Positions, ...]
"""For each request the positions of its GPUs."""


def after(node: FreeNode, pod: PodRequest, gpus: Given) -> FreeNode:
    """Return the node when the pod has those GPUs; raises ValueError where it lacks the room."""
    left = node.gpus
    for request, positions in zip(pod.requests, gpus, strict=True):
        left = take(left, request, positions)
    cpu, memory = node.cpu_milli - pod.cpu_milli, node.memory_mib - pod.memory_mib
    if min([cpu, memory, *(gpu.cores for gpu in left)]) < 0:
        raise ValueError(f"{pod} does not fit on {gpus} of {node.name}")
    kinds = list(kinds_on(node))
    if pod.requests:
        insort(kinds, kind_of(pod))
    return _node(node, left, cpu, memory, kinds)


def given_back(node: FreeNode, pod: PodRequest, gpus: Given) -> FreeNode:
    """Return the node when the pod that had those GPUs has gone."""
    left = list(node.gpus)
    for request, positions in zip(pod.requests, gpus, strict=True):
        for position in positions:
            gpu = left[position]
            cores, blocks = gpu.cores + request.cores, gpu.blocks + request.blocks
            if request.whole_gpus:
                cores, blocks = CORES_PER_GPU, gpu.memory
            left[position] = FreeGpu(cores, blocks, gpu.processes - 1, gpu.memory)
    kinds = list(kinds_on(node))
    if pod.requests:
        kinds.remove(kind_of(pod))
    cpu, memory = node.cpu_milli + pod.cpu_milli, node.memory_mib + pod.memory_mib
    return _node(node, tuple(left), cpu, memory, kinds)


def _node(node: FreeNode, gpus: Gpus, cpu: int, memory: int, kinds: list[str]) -> FreeNode:
    total = node.total_cpu_milli, node.total_memory_mib
    return TraceNode(node.name, node.model, gpus, cpu, memory, *total, tuple(kinds))
