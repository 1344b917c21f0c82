"""In which order the GPUs of a node are offered to somebody who takes the first that fits. Pure.

kube-scheduler does so with the devices of a ResourceSlice, so the order is all that placement can
say there: GPUs in use come first, the fullest before the others, so that shares fill up what is
begun; then the free ones, each the one whose loss breaks the loosest bonds to those left. What
nobody can get comes last.
"""

from collections.abc import Iterator

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.placement.values import FreeGpus, GpuChoice, Request
from gpumanager.placement.whole import fragment
from gpumanager.units import CORES_PER_GPU


def offer_order(topology: Topology, free: FreeGpus) -> tuple[Gpu, ...]:
    """Return all GPUs of `topology`."""
    begun = [gpu for gpu in topology.gpus if free.of(gpu).cores and not free.of(gpu).whole]
    begun.sort(key=lambda gpu: (free.of(gpu).cores, free.of(gpu).blocks, gpu.index))
    untouched = tuple(_untouched(topology, free))
    closed = [gpu for gpu in topology.gpus if gpu not in begun and gpu not in untouched]
    return (*begun, *untouched, *closed)


def _untouched(topology: Topology, free: FreeGpus) -> Iterator[Gpu]:
    request = Request(CORES_PER_GPU)
    while isinstance(chosen := fragment(topology, free, request), GpuChoice):
        yield chosen.gpus[0]
        free = free.take(chosen)
