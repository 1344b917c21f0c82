"""What to make of a node's GPUs, their driver and what is put in its place. Pure."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Final

from gpumanager.doctor.values import (
    Finding,
    GpuView,
    InstalledDriver,
    SharesView,
    Unseen,
    note,
    well,
    wrong,
)
from gpumanager.gpu.driver_version import LoadedDriver
from gpumanager.gpu.values import Level, Topology
from gpumanager.units import format_bytes

Findings = Iterator[Finding]

XIDS: Final = "look for Xid messages in the kernel's log; it may need a reset"
MILD: Final = "the other GPUs need nothing"
HMM_OFF: Final = (
    "write `options nvidia_uvm uvm_disable_hmm=1` into /etc/modprobe.d/nvidia-uvm.conf on the "
    "node, then reload nvidia_uvm or reboot"
)

HMM_UNKNOWN: Final = f"drivers before 535 have no HMM; otherwise load nvidia_uvm, or {HMM_OFF}"


def about_gpus(view: GpuView) -> Findings:
    for check in (driver_libraries, driver_answers, gpus, troubles, device_nodes, shims):
        yield from check(view)


def about_shares(view: SharesView) -> Findings:
    for check in (unlimited_libraries, pageable_memory):
        yield from check(view)


def unlimited_libraries(view: SharesView) -> Findings:
    match view.unlimited:
        case Unseen():
            return  # said already, of the driver's libraries
        case ():
            yield well("unlimited libraries", "none in containers that share a GPU")
        case names:
            yield note(
                "unlimited libraries",
                f"containers that share a GPU have {', '.join(names)}, whose memory and GPU time "
                "nothing limits",
                "set NVIDIA_DRIVER_CAPABILITIES=compute,utility in pods that draw nothing: they "
                "get no OpenGL, EGL and Vulkan. OpenCL is there with --opencl-in-shares alone",
            )


def pageable_memory(view: SharesView) -> Findings:
    match view.hmm:
        case Unseen(cause):
            yield note("pageable memory (HMM)", f"unknown: {cause}", HMM_UNKNOWN)
        case True:
            yield note(
                "pageable memory (HMM)",
                "uvm_disable_hmm is N: with the open kernel modules, memory of malloc that a "
                "kernel touches moves into the GPU, past the limit of a share",
                HMM_OFF,
            )
        case _:
            yield well("pageable memory (HMM)", "kernels cannot reach it")


def driver_libraries(view: GpuView) -> Findings:
    match view.installed:
        case Unseen(cause):
            yield wrong(
                "driver libraries",
                cause,
                "in a container, mount the node's root and name it with --driver-root",
            )
        case InstalledDriver() as driver:
            yield well("driver libraries", f"{driver.version}, {driver.library}")
            for warning in driver.warnings:
                yield note("driver libraries", warning, "look at what `ldconfig -p` lists")


def driver_answers(view: GpuView) -> Findings:
    match view.loaded:
        case Unseen(cause):
            yield wrong(
                "driver",
                cause,
                "the agent starts once `nvidia-smi` lists the GPUs where the agent runs",
            )
        case LoadedDriver(version, cuda):
            installed = view.installed
            if isinstance(installed, Unseen) or installed.version == version:
                yield well("driver", f"{version}, CUDA up to {cuda}")
            else:
                yield wrong(
                    "driver",
                    f"{version} is loaded, and its libraries are of another version",
                    "finish the driver's update: reload its kernel modules, or reboot",
                )


def gpus(view: GpuView) -> Findings:
    if isinstance(view.loaded, Unseen):
        return  # said already
    if isinstance(view.topology, Unseen):
        yield wrong("GPUs", view.topology.cause, XIDS)
    elif not view.topology.gpus:
        yield wrong("GPUs", "none", "run the agent only on nodes with GPUs, by a node selector")
    else:
        kinds = Counter((gpu.model, gpu.memory) for gpu in view.topology.gpus)
        rows = (f"{n} x {model}, {format_bytes(size)}" for (model, size), n in kinds.items())
        yield well("GPUs", "; ".join(rows))
        yield _links(view.topology)


def troubles(view: GpuView) -> Findings:
    if isinstance(view.topology, Unseen):
        return  # said already
    if isinstance(view.troubles, Unseen):
        yield wrong("GPUs", f"cannot check their health: {view.troubles.cause}", XIDS)
        return
    for one in view.troubles:
        found = f"{one.gpu}: {one.cause}"
        advice = one.advice or (MILD if one.mild else XIDS)
        yield note("GPUs", found, advice) if one.mild else wrong("GPUs", found, advice)


def _links(topology: Topology) -> Finding:
    gpus = topology.gpus
    pairs = [topology.bond(a, b) for a, b in combinations(range(len(gpus)), 2)]
    nodes = {gpu.numa_node for gpu in gpus if gpu.numa_node is not None}
    flat = all(str(bond) == Level.SYS.name for bond in pairs) and len(nodes) < len(gpus) > 1
    if flat or any(gpu.numa_node is None for gpu in gpus):
        return note(
            "topology",
            "the machine does not report how its GPUs are connected",
            "nothing to do: pods with several GPUs get any of them, unaligned",
        )
    bonds = Counter("NVLink" if bond.nvlinks else bond.level.name for bond in pairs)
    seen = ", ".join(f"{name} x {n}" for name, n in bonds.items()) or "one GPU"
    return well("topology", f"{seen}; NUMA nodes {', '.join(map(str, sorted(nodes)))}")


def device_nodes(view: GpuView) -> Findings:
    if view.missing_nodes:
        yield wrong(
            "device nodes",
            f"missing: {', '.join(map(str, view.missing_nodes))}",
            "run `nvidia-modprobe -u -c 0` on the node; in a container, mount its /dev",
        )
    elif not isinstance(view.topology, Unseen):
        yield well("device nodes", "all exist")


def shims(view: GpuView) -> Findings:
    if view.missing_shims:
        yield wrong(
            "shims",
            f"missing: {', '.join(map(str, view.missing_shims))}",
            "reinstall gpumanager, or build the shims: python -m vcuda_shim.build",
        )
    else:
        yield well("shims", "built")
