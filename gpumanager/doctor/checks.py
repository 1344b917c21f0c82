"""What to make of a node. Pure: what was seen in, findings out. Whatever is not well says what to
do."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Final

from gpumanager.doctor.claim_checks import CLAIM_CHECKS
from gpumanager.doctor.question import Unseen
from gpumanager.doctor.values import (
    Directory,
    Finding,
    ListeningSocket,
    ObservedNode,
    Verdict,
    note,
    well,
    wrong,
)
from gpumanager.gpu.device_attributes import LoadedDriver
from gpumanager.gpu.values import Level
from gpumanager.units import MIB, format_bytes

Findings = Iterator[Finding]

XIDS: Final = "look for Xid messages in the kernel's log; it may need a reset"
MILD: Final = "the other GPUs need nothing"
HMM_OFF: Final = (
    "write `options nvidia_uvm uvm_disable_hmm=1` into /etc/modprobe.d/nvidia-uvm.conf on the "
    "node, then reload nvidia_uvm or reboot"
)
HMM_UNKNOWN: Final = f"drivers before 535 have no HMM; otherwise load nvidia_uvm, or {HMM_OFF}"
LEAST_FREE: Final = 64 * MIB
"""Room that the journal, the books and the driver's links are sure to fit in."""
LEAST_FILES: Final = 4096
"""Descriptors for some thousand allocations: two for each, and two for each process."""


def driver_libraries(node: ObservedNode) -> Findings:
    if isinstance(node.installed, Unseen):
        advice = "in a container, mount the node's root and name it with --driver-root"
        yield wrong("driver libraries", node.installed.cause, advice)
        return
    yield well("driver libraries", f"{node.installed.version}, {node.installed.library}")
    for warning in node.installed.warnings:
        yield note("driver libraries", warning, "look at what `ldconfig -p` lists")


def driver(node: ObservedNode) -> Findings:
    match node.loaded:
        case Unseen(cause):
            advice = "the agent starts once `nvidia-smi` lists the GPUs where the agent runs"
            yield wrong("driver", cause, advice)
        case LoadedDriver(version, cuda):
            if isinstance(node.installed, Unseen) or node.installed.version == version:
                yield well("driver", f"{version}, CUDA up to {cuda}")
            else:
                yield wrong(
                    "driver",
                    f"{version} is loaded, and its libraries are of another version",
                    "finish the driver's update: reload its kernel modules, or reboot",
                )


def gpus(node: ObservedNode) -> Findings:
    if isinstance(node.loaded, Unseen):
        return  # said already
    if isinstance(node.topology, Unseen):
        yield wrong("GPUs", node.topology.cause, XIDS)
        return
    found = node.topology.gpus
    if not found:
        yield wrong("GPUs", "none", "run the agent only on nodes with GPUs, by a node selector")
        return
    kinds = Counter((gpu.model, gpu.memory) for gpu in found)
    rows = (f"{n} x {model}, {format_bytes(size)}" for (model, size), n in kinds.items())
    yield well("GPUs", "; ".join(rows))
    pairs = [node.topology.bond(a, b) for a, b in combinations(range(len(found)), 2)]
    nodes = {gpu.numa_node for gpu in found if gpu.numa_node is not None}
    flat = all(str(bond) == Level.SYS.name for bond in pairs) and len(nodes) < len(found) > 1
    if flat or any(gpu.numa_node is None for gpu in found):
        yield note(
            "topology",
            "the machine does not report how its GPUs are connected",
            "nothing to do: pods with several GPUs get any of them, unaligned",
        )
        return
    bonds = Counter("NVLink" if bond.nvlinks else bond.level.name for bond in pairs)
    seen = ", ".join(f"{name} x {n}" for name, n in bonds.items()) or "one GPU"
    yield well("topology", f"{seen}; NUMA nodes {', '.join(map(str, sorted(nodes)))}")


def troubles(node: ObservedNode) -> Findings:
    if isinstance(node.topology, Unseen):
        return  # said already
    if isinstance(node.troubles, Unseen):
        yield wrong("GPUs", f"cannot check their health: {node.troubles.cause}", XIDS)
        return
    for one in node.troubles:
        found = f"{one.gpu}: {one.cause}"
        advice = one.advice or (MILD if one.mild else XIDS)
        yield note("GPUs", found, advice) if one.mild else wrong("GPUs", found, advice)


def files(node: ObservedNode) -> Findings:
    if node.missing_nodes:
        yield wrong(
            "device nodes",
            f"missing: {', '.join(map(str, node.missing_nodes))}",
            "run `nvidia-modprobe -u -c 0` on the node; in a container, mount its /dev",
        )
    elif not isinstance(node.topology, Unseen):
        yield well("device nodes", "all exist")
    if node.missing_shims:
        yield wrong(
            "shims",
            f"missing: {', '.join(map(str, node.missing_shims))}",
            "reinstall gpumanager, or build the shims: python -m vcuda_shim.build",
        )
    else:
        yield well("shims", "built")


def unlimited_libraries(node: ObservedNode) -> Findings:
    match node.unlimited:
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


def pageable_memory(node: ObservedNode) -> Findings:
    match node.hmm:
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


def kubelet(node: ObservedNode) -> Findings:
    advice = {
        ListeningSocket.ABSENT: "start the kubelet; in a container, mount this directory of the "
        "node, or name another with --device-plugin-path",
        ListeningSocket.DEAD: "start the kubelet: it left this socket when it ended",
        ListeningSocket.DENIED: "run as root, and check whether SELinux or AppArmor denies it",
    }
    found = f"{node.kubelet_socket}: {node.listener.value}"
    if node.listener is not ListeningSocket.LISTENS:
        yield wrong("kubelet", found, advice[node.listener])
    else:
        version = "unknown" if isinstance(node.version, Unseen) else node.version
        yield well("kubelet", f"{found}; version {version}")


def agent(node: ObservedNode) -> Findings:
    states = set(node.sockets)
    if states == {ListeningSocket.LISTENS}:
        yield well("agent", "runs")
    elif ListeningSocket.DENIED in states:
        yield note("agent", "its sockets may not be opened", "run as root to see whether it runs")
    else:
        yield note("agent", "does not run", "start it: gpumanager agent")


def kubelet_answers(node: ObservedNode) -> Findings:
    yield _row(
        "pods",
        node.pods,
        "{} listed by the kubelet",
        wrong,
        "check --kubelet-endpoint and --kubelet-token, whose account needs `get` on "
        "nodes/proxy (from Kubernetes 1.33 on nodes/pods)",
    )
    if node.held is None:
        yield well("device checkpoint", "none yet: no pod got a device")
    else:
        advice = "restart the kubelet, which rewrites it; in a container, mount its directory"
        yield _row("device checkpoint", node.held, "pods hold {}", wrong, advice)
    yield _row(
        "PodResources",
        node.pod_resources,
        "{}",
        note,
        "mount the kubelet's pod-resources directory, or name its socket with "
        "--pod-resources-socket; until then the agent reads only its checkpoint",
    )


def other_managers(node: ObservedNode) -> Findings:
    part = "other GPU managers"
    match node.managers:
        case None:
            return
        case Unseen(cause):
            yield note(
                part,
                cause,
                "check --kubeconfig or the pod's service account, which needs `get` on nodes and "
                "`list` on pods and resourceslices",
            )
        case ():
            yield well(part, "none found")
        case found if node.beside:
            advice = "--allow-other-managers is set: see that no GPU is offered by both"
            yield note(part, "; ".join(found), advice)
        case found:
            yield wrong(
                part,
                "; ".join(found),
                "run one GPU manager on a node: take the label tencent.com/gpu away from this "
                "node, or keep the other manager's DaemonSet off it",
            )


def containers(node: ObservedNode) -> Findings:
    without = "until then the agent identifies callers by their cgroup only"
    yield _row("container runtime", node.runtime, "{}", note, without)
    if node.nvidia_defaults:
        yield note(
            "NVIDIA's runtime",
            f"the default, by {', '.join(map(str, node.nvidia_defaults))}",
            "make runc the default; a pod that sets NVIDIA_VISIBLE_DEVICES bypasses its limits",
        )
    if node.nvidia_devices:
        yield note(
            "CDI",
            f"describes NVIDIA's devices: {', '.join(map(str, node.nvidia_devices))}",
            "check that no pod with our resources requests one by name: it would bypass its limits",
        )
    if node.cgroups is None:
        yield note(
            "cgroups",
            "no hierarchy is mounted",
            "mount the node's /sys/fs/cgroup: without it the agent cannot map processes to pods",
        )
    else:
        made_by = f"made by {node.driver}" if node.driver else "driver unknown, since no pod runs"
        yield well("cgroups", f"{node.cgroups}, {made_by}")


def process(node: ObservedNode) -> Findings:
    """Check what an agent may do that runs as this process does."""
    if node.root:
        yield well("user", "root")
    else:
        advice = "run as root: the agent needs it for sockets and device nodes"
        yield wrong("user", "not root", advice)
    if node.sees_all_processes:
        yield well("processes", "all of the node's are visible")
    else:
        yield note(
            "processes",
            "only those of this PID namespace are visible",
            "set hostPID: true for the agent's pod, so that it finds the processes that NVML lists",
        )
    if node.takes_books_back:
        yield well("memory accounting", "can be recovered from processes after a restart")
    else:
        yield note(
            "memory accounting",
            "cannot be recovered from processes of other users after a restart",
            "add CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; otherwise a container that runs then "
            "starts no new GPU process until its present ones have ended",
        )
    limit = f"at most {node.open_files}"
    if node.open_files < LEAST_FILES:
        advice = f"allow {LEAST_FILES} or more (ulimit -n, LimitNOFILE): two for each container"
        yield note("open files", limit, advice)
    else:
        yield well("open files", limit)


def directories(node: ObservedNode) -> Findings:
    if isinstance(node.directories, Unseen):
        yield wrong("volume.conf", node.directories.cause, "fix it, or remove --volume-config")
    else:
        yield from map(_directory, node.directories)


def journal(node: ObservedNode) -> Findings:
    if node.granted is None:
        yield well("journal", "none yet")
    else:
        advice = "the agent does not start until this is fixed"
        yield _row("journal", node.granted, "containers granted: {}", wrong, advice)


CHECKS: Final = (
    driver_libraries, driver, gpus, troubles, files, unlimited_libraries, pageable_memory,
    kubelet, agent, kubelet_answers, other_managers, containers,
)  # fmt: skip
"""In the order in which an agent needs it; those of claims are next, and then `OWN_CHECKS`."""
OWN_CHECKS: Final = (process, directories, journal)


def examine(node: ObservedNode) -> tuple[Finding, ...]:
    """Return all findings."""
    claims = node.claims
    return (
        *(found for check in CHECKS for found in check(node)),
        *(found for check in CLAIM_CHECKS if claims for found in check(claims)),
        *(found for check in OWN_CHECKS for found in check(node)),
    )


def is_wrong(findings: tuple[Finding, ...]) -> bool:
    return any(finding.verdict is Verdict.WRONG for finding in findings)


def _row(
    part: str,
    seen: object,
    found: str,
    unseen: Callable[[str, str, str], Finding],
    advice: str,
) -> Finding:
    """Return the finding about an input that is well wherever it can be seen."""
    if isinstance(seen, Unseen):
        return unseen(part, seen.cause, advice)
    return well(part, found.format(seen))


def _directory(one: Directory) -> Finding:
    if one.obstacle:
        advice = "give the agent a directory of the node that it can write to"
        return wrong(one.purpose, f"{one.path}: {one.obstacle}", advice)
    if one.free < LEAST_FREE:
        return wrong(
            one.purpose,
            f"{one.path}: {format_bytes(one.free)} free",
            f"make room: less than {format_bytes(LEAST_FREE)} is too little to grant anything",
        )
    if not one.executable:
        return wrong(
            one.purpose,
            f"{one.path}: mounted noexec",
            "containers cannot load the driver's libraries from there: remount it with exec",
        )
    return well(one.purpose, f"{one.path}, {format_bytes(one.free)} free")
