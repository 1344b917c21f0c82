"""Simulated machines as data: GPUs, how they are linked, which driver they run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from gpumanager.gpu.values import GpuUUID, Topology


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What the simulated driver says of a model. context_bytes: what a first context takes.
    reserved_bytes: what the driver keeps of the card's memory, from everybody.

    link_bandwidth, memory_bandwidth: bytes a second, to the host each way and of its own memory;
    0: of a PCIe 3.0 card's order.
    """

    name: str
    sm_count: int
    compute_capability: tuple[int, int]
    max_threads_per_sm: int = 2048
    context_bytes: int = 0
    reserved_bytes: int = 0
    link_bandwidth: int = 0
    memory_bandwidth: int = 0


class UtilizationSamples(IntEnum):
    """What NVML tells of how busy processes keep a GPU; as `native/sim/core/machine.h` has them."""

    EVERY_PROCESS = 0
    ONE_PROCESS = 1
    NONE = 2


@dataclass(frozen=True, slots=True)
class DriverBehaviour:
    """Where real drivers are less kind than an ideal one, which is what the defaults describe.

    slice_ns: for how long a process has a GPU that others want too; 0: 2 ms. switch_ns: GPU time
    lost whenever another process gets the GPU. event_floor_ns: what a pair of timing events shows
    around nothing; event_idle_ns: the same, more, where the stream was idle at the first.
    page_bytes: allocations larger than slab_most_bytes take whole pages, smaller ones share pages;
    0: bytes as asked for. queue_depth: launches that can wait; 0: 1024. hides_managed: NVML's
    figure of a process lacks managed memory. counts_imports: it contains what another process made
    and this one opened. local_memory: stacks of resident threads take memory at launch. hmm:
    kernels reach pageable memory of the host, past every limit. hides_memory: NVML has no memory
    figure of a GPU, as where it shares the machine's.
    """

    slice_ns: int = 0
    switch_ns: int = 0
    event_floor_ns: int = 0
    event_idle_ns: int = 0
    page_bytes: int = 0
    slab_most_bytes: int = 0
    queue_depth: int = 0
    samples: UtilizationSamples = UtilizationSamples.EVERY_PROCESS
    hides_managed: bool = False
    counts_imports: bool = False
    local_memory: bool = False
    hmm: bool = False
    hides_memory: bool = False


IDEAL: Final = DriverBehaviour()

REAL: Final = DriverBehaviour(
    # The default time slice of a channel group in NVIDIA's open kernel modules: 128 << 3 us
    # (kernel_fifo_gv100.c).
    slice_ns=1_024_000,
    # Not known of recent GPUs: nothing is published, third parties say tens to hundreds of
    # microseconds. Enough to show what a limiter makes of it; the benchmark tries 0 and 150 too.
    switch_ns=50_000,
    # Pairs around nothing, behind other work, measure 2 to 5 us (NVIDIA/nvbench#184,
    # triton-lang/triton#1893, pytorch/helion#2994).
    event_floor_ns=3_000,
    # On an idle stream the first event is stamped before the host has pushed the kernel, which
    # takes a launch (2 to 4 us) and the way over the link; nvbench#184 has seen 10 to 30 us in
    # all. With the floor 9 us: the friendly end of that.
    event_idle_ns=6_000,
    # "Allocations larger than 1MB are now always page-aligned", pages of 2 MiB counted whole
    # (pytorch/pytorch#17120); smaller ones come out of pages that they share.
    page_bytes=2 << 20,
    slab_most_bytes=1 << 20,
    # The size of the default launch queue; CUDA_SCALE_LAUNCH_QUEUES scales it.
    queue_depth=1024,
    # ctrl2080perf.h: a sample names the process that was active on the engine when it was taken.
    # In the dumps of NVIDIA/go-nvml#51 and Syllo/nvtop#110 no two processes share a stamp.
    samples=UtilizationSamples.ONE_PROCESS,
    # The open kernel modules count no clients of the kernel's own, such as UVM, for a process.
    hides_managed=True,
    # A process's figure contains memory that it duplicated from another's (memSharedDuped in the
    # open kernel modules); whether NVML adds it up is not known, so the unkind answer is taken.
    counts_imports=True,
    # The driver takes local memory for all threads that can be resident when a kernel needs it
    # (CUDA programming guide, cuCtxSetLimit: stack size).
    local_memory=True,
)
"""As real drivers of the 535 to 580 series are reported to behave. No figure here is measured."""

H100: Final = replace(
    REAL,
    slice_ns=2_090_560,
    switch_ns=151_424,
    # Around kernels; a pair around nothing shows 1.28 us, which no field tells apart.
    event_floor_ns=3_300,
    event_idle_ns=2_700,
    # The launch that runs has left the queue: 1,021 are queued before the host waits.
    queue_depth=1022,
)
"""As the GPU check measured one H100 80GB HBM3 with driver 580.159.04: medians. A test holds it to
docs/gpu/nvidia-h100-80gb-hbm3-580.159.04."""

BEHAVIOURS: Final = {"ideal": IDEAL, "real": REAL, "h100": H100}
DEFAULT_BEHAVIOUR: Final = REAL
"""Of machines that say nothing."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node: its GPUs with their bonds, the models they are of, by name, and its driver."""

    name: str
    topology: Topology
    models: Mapping[str, GpuModel]
    cuda_version: int = 12050
    driver: DriverBehaviour = DEFAULT_BEHAVIOUR

    def position(self, gpu: GpuUUID) -> int:
        """Return a GPU's place among all; raises KeyError for one of another machine."""
        return {known.uuid: place for place, known in enumerate(self.topology.gpus)}[gpu]
