"""What to make of a node. Pure: inputs in, findings out. Whatever is not well says what to do.

A check is a function of inputs by their names, which `cli.support.inputs` reads; in the place of
one that could not be looked at is `Unseen`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from gpumanager.doctor.claim_checks import CLAIM_CHECKS
from gpumanager.doctor.question import Unseen
from gpumanager.doctor.values import (
    Finding,
    Findings,
    InstalledDriver,
    ListeningSocket,
    Verdict,
    check,
    note,
    row,
    well,
    wrong,
)
from gpumanager.gpu.device_attributes import LoadedDriver
from gpumanager.gpu.values import Level, Topology
from gpumanager.units import format_bytes

XIDS: Final = "look for Xid messages in the kernel's log; it may need a reset"
MILD: Final = "the other GPUs need nothing"
HMM_OFF: Final = (
    "write `options nvidia_uvm uvm_disable_hmm=1` into /etc/modprobe.d/nvidia-uvm.conf on the "
    "node, then reload nvidia_uvm or reboot"
)
HMM_UNKNOWN: Final = f"drivers before 535 have no HMM; otherwise load nvidia_uvm, or {HMM_OFF}"
LEAST_FILES: Final = 4096
"""Descriptors for some thousand allocations: two for each, and two for each process."""


@check(
    "driver libraries",
    wrong,
    "in a container, mount the node's root and name it with --driver-root",
)
def driver_libraries(installed: InstalledDriver) -> Findings:
    yield well(f"{installed.version}, {installed.library}")
    for warning in installed.warnings:
        yield note(warning, "look at what `ldconfig -p` lists")


@check("driver", wrong, "the agent starts once `nvidia-smi` lists the GPUs where the agent runs")
def driver(loaded: LoadedDriver, installed: InstalledDriver | Unseen) -> Findings:
    if isinstance(installed, Unseen) or installed.version == loaded.version:
        yield well(f"{loaded.version}, CUDA up to {loaded.cuda}")
    else:
        yield wrong(
            f"{loaded.version} is loaded, and its libraries are of another version",
            "finish the driver's update: reload its kernel modules, or reboot",
        )


@check("GPUs", wrong, XIDS, after=("loaded",))
def gpus(topology: Topology) -> Findings:
    found = topology.gpus
    if not found:
        yield wrong("none", "run the agent only on nodes with GPUs, by a node selector")
        return
    kinds = Counter((gpu.model, gpu.memory) for gpu in found)
    rows = (f"{n} x {model}, {format_bytes(size)}" for (model, size), n in kinds.items())
    yield well("; ".join(rows))
    pairs = [topology.bond(a, b) for a, b in combinations(range(len(found)), 2)]
    nodes = {gpu.numa_node for gpu in found if gpu.numa_node is not None}
    flat = all(str(bond) == Level.SYS.name for bond in pairs) and len(nodes) < len(found) > 1
    if flat or any(gpu.numa_node is None for gpu in found):
        yield note(
            "the machine does not report how its GPUs are connected",
            "nothing to do: pods with several GPUs get any of them, unaligned",
            "topology",
        )
        return
    bonds = Counter("NVLink" if bond.nvlinks else bond.level.name for bond in pairs)
    seen = ", ".join(f"{name} x {n}" for name, n in bonds.items()) or "one GPU"
    yield well(f"{seen}; NUMA nodes {', '.join(map(str, sorted(nodes)))}", "topology")


@check("GPUs", after=("topology",))
def troubles(troubles: Sequence[Finding] | Unseen) -> Findings:
    """Yield what an agent leaves out or takes out of use."""
    if isinstance(troubles, Unseen):
        yield wrong(f"cannot check their health: {troubles.cause}", XIDS)
        return
    yield from troubles


@check("device nodes")
def device_nodes(missing_nodes: Sequence[Path], topology: Topology | Unseen) -> Findings:
    if missing_nodes:
        yield wrong(
            f"missing: {', '.join(map(str, missing_nodes))}",
            "run `nvidia-modprobe -u -c 0` on the node; in a container, mount its /dev",
        )
    elif not isinstance(topology, Unseen):
        yield well("all exist")


@check("pageable memory (HMM)")
def pageable_memory(hmm: bool | Unseen) -> Findings:  # noqa: FBT001 - an input
    """hmm: whether kernels may reach pageable memory, past the limits of a share."""
    if isinstance(hmm, Unseen):
        yield note(f"unknown: {hmm.cause}", HMM_UNKNOWN)
    elif hmm:
        yield note(
            "uvm_disable_hmm is N: with the open kernel modules, memory of malloc that a "
            "kernel touches moves into the GPU, past the limit of a share",
            HMM_OFF,
        )
    else:
        yield well("kernels cannot reach it")


@check("kubelet")
def kubelet(listener: ListeningSocket, kubelet_socket: Path, version: str | Unseen) -> Findings:
    """listener: what listens on its socket."""
    advice = {
        ListeningSocket.ABSENT: "start the kubelet; in a container, mount this directory of the "
        "node, or name another with --device-plugin-path",
        ListeningSocket.DEAD: "start the kubelet: it left this socket when it ended",
        ListeningSocket.DENIED: "run as root, and check whether SELinux or AppArmor denies it",
    }
    found = f"{kubelet_socket}: {listener.value}"
    if listener in advice:
        yield wrong(found, advice[listener])
    else:
        yield well(f"{found}; version {'unknown' if isinstance(version, Unseen) else version}")


@check("agent")
def agent(sockets: Sequence[ListeningSocket]) -> Findings:
    """sockets: our own beside the kubelet's."""
    if {*sockets} == {ListeningSocket.LISTENS}:
        yield well("runs")
    elif ListeningSocket.DENIED in sockets:
        yield note("its sockets may not be opened", "run as root to see whether it runs")
    else:
        yield note("does not run", "start it: gpumanager agent")


@check(
    "other GPU managers",
    note,
    "check --kubeconfig or the pod's service account, which needs `get` on nodes and `list` on "
    "pods and resourceslices",
)
def other_managers(managers: Sequence[str] | None, beside: bool) -> Findings:  # noqa: FBT001
    """managers: None without an API server. beside: whether the agent offers GPUs all the same."""
    if managers and beside:
        advice = "--allow-other-managers is set: see that no GPU is offered by both"
        yield note("; ".join(managers), advice)
    elif managers:
        yield wrong(
            "; ".join(managers),
            "run one GPU manager on a node: take the label tencent.com/gpu away from this "
            "node, or keep the other manager's DaemonSet off it",
        )
    elif managers is not None:
        yield well("none found")


@check("cgroups")
def cgroups(cgroups: str | Unseen | None) -> Findings:
    """cgroups: their version; None for none."""
    if not isinstance(cgroups, str):
        yield note(
            "no hierarchy is mounted",
            "mount the node's /sys/fs/cgroup: without it the agent cannot map processes to pods",
        )
    else:
        yield well(cgroups)


@check("open files")
def files(open_files: int) -> Findings:
    if open_files < LEAST_FILES:
        advice = f"allow {LEAST_FILES} or more (ulimit -n, LimitNOFILE): two for each container"
        yield note(f"at most {open_files}", advice)
    else:
        yield well(f"at most {open_files}")


@check("volume.conf", wrong, "fix it, or remove --volume-config")
def directories(directories: Sequence[Finding]) -> Findings:
    yield from directories


CHECKS: Final = (
    driver_libraries, driver, gpus, troubles, device_nodes,
    row("shims", "missing_shims", "built",
        bad=(wrong, "missing: {}",
             "reinstall gpumanager, or build the shims: python -m vcuda_shim.build")),
    row("unlimited libraries", "unlimited", "none in containers that share a GPU",
        bad=(note, "containers that share a GPU have {}, whose memory and GPU time nothing limits",
             ("set NVIDIA_DRIVER_CAPABILITIES=compute,utility in pods that draw nothing: they get "
             "no OpenGL, EGL and Vulkan. OpenCL is there with --opencl-in-shares alone"))),
    pageable_memory, kubelet, agent,
    row("pods", "pods", "{} listed by the kubelet",
        unseen=(wrong, ("check --kubelet-endpoint and --kubelet-token, whose account needs `get` "
                "on nodes/proxy (from Kubernetes 1.33 on nodes/pods)"))),
    row("device checkpoint", "held", "pods hold {}", none="none yet: no pod got a device",
        unseen=(wrong, ("restart the kubelet, which rewrites it; in a container, mount its "
                "directory"))),
    row("PodResources", "pod_resources", "{}",
        unseen=(note, ("mount the kubelet's pod-resources directory, or name its socket with "
                "--pod-resources-socket; until then the agent reads only its checkpoint"))),
    other_managers,
    row("container runtime", "runtime", "{}",
        unseen=(note, "until then the agent identifies callers by their cgroup only")),
    row("NVIDIA's runtime", "nvidia_defaults", "",
        bad=(note, "the default, by {}", ("make runc the default; a pod that sets "
             "NVIDIA_VISIBLE_DEVICES bypasses its limits"))),
    row("CDI", "nvidia_devices", "",
        bad=(note, "describes NVIDIA's devices: {}", ("check that no pod with our resources "
             "requests one by name: it would bypass its limits"))),
    cgroups, *CLAIM_CHECKS,
    row("user", "root", "root",
        bad=(wrong, "not root", "run as root: the agent needs it for sockets and device nodes")),
    row("processes", "sees_all_processes", "all of the node's are visible",
        bad=(note, "only those of this PID namespace are visible", ("set hostPID: true for the "
             "agent's pod, so that it finds the processes that NVML lists"))),
    row("memory accounting", "takes_books_back", "can be recovered from processes after a restart",
        bad=(note, "cannot be recovered from processes of other users after a restart",
             ("add CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; otherwise a container that runs then "
             "starts no new GPU process until its present ones have ended"))),
    files, directories,
    row("journal", "granted", "containers granted: {}", none="none yet",
        unseen=(wrong, "the agent does not start until this is fixed")),
)  # fmt: skip
"""In the order in which an agent needs it."""


def examine(inputs: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return all findings."""
    return tuple(found for one in CHECKS for found in one(inputs))


def is_wrong(findings: Sequence[Finding]) -> bool:
    return any(finding.verdict is Verdict.WRONG for finding in findings)
