"""In which order the GPUs of a node are offered to a scheduler that takes the first fit. Pure.

kube-scheduler does so with the devices of a ResourceSlice, so the order is all that placement can
say there: GPUs in use come first, the fullest before the others, so that shares fill up what is
begun; then the free ones, each the one whose loss breaks the loosest bonds to those left. GPUs
that cannot be had come last.
"""

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.placement.values import FreeGpus, GpuChoice, Request
from gpumanager.placement.whole import fragment
from gpumanager.units import CORES_PER_GPU


def offer_order(topology: Topology, free: FreeGpus) -> tuple[Gpu, ...]:
    """Return all GPUs of `topology` in this order."""
    begun = [gpu for gpu in topology.gpus if free.of(gpu).cores and not free.of(gpu).whole]
    begun.sort(key=lambda gpu: (free.of(gpu).cores, free.of(gpu).blocks, gpu.index))
    untouched, left = list[Gpu](), free
    while isinstance(chosen := fragment(topology, left, Request(CORES_PER_GPU)), GpuChoice):
        untouched += chosen.gpus
        left = left.take(chosen)
    closed = [gpu for gpu in topology.gpus if gpu not in begun and gpu not in untouched]
    return (*begun, *untouched, *closed)
