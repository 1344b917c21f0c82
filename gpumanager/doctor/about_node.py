"""What to make of a node's containers, and of what an agent may do there and has written. Pure."""

from collections.abc import Iterator
from typing import Final

from gpumanager.doctor.values import (
    ContainersView,
    Directory,
    Finding,
    ObservedNode,
    OwnView,
    Unseen,
    note,
    well,
    wrong,
)
from gpumanager.units import MIB, format_bytes

LEAST_FREE: Final = 64 * MIB
"""Room that the journal, the books and the driver's links are sure to fit in."""
LEAST_FILES: Final = 4096
"""Descriptors for some thousand allocations: two for each, and two for each process."""

Findings = Iterator[Finding]


def about_containers(view: ContainersView) -> Findings:
    for check in (runtime, nvidia_runtime, cgroups):
        yield from check(view)


def about_own(view: OwnView) -> Findings:
    for check in (permissions, processes, books, open_files, directories, journal):
        yield from check(view)


def about_managers(node: ObservedNode) -> Findings:
    match node.managers:
        case None:
            return
        case Unseen(cause):
            yield note(
                "other GPU managers",
                cause,
                "check --kubeconfig or the pod's service account, which needs `get` on nodes and "
                "`list` on pods and resourceslices",
            )
        case ():
            yield well("other GPU managers", "none found")
        case found:
            others = "; ".join(found)
            if node.beside:
                advice = "--beside-other-managers is set: see that no GPU is offered by both"
                yield note("other GPU managers", others, advice)
            else:
                advice = (
                    "run one GPU manager on a node: take the label tencent.com/gpu away from this "
                    "node, or keep the other manager's DaemonSet off it"
                )
                yield wrong("other GPU managers", others, advice)


def runtime(view: ContainersView) -> Findings:
    match view.runtime:
        case Unseen(cause):
            yield note(
                "container runtime",
                cause,
                "until then the agent identifies callers by their cgroup only",
            )
        case who:
            yield well("container runtime", who)


def nvidia_runtime(view: ContainersView) -> Findings:
    if view.nvidia_defaults:
        yield note(
            "NVIDIA's runtime",
            f"the default, by {', '.join(map(str, view.nvidia_defaults))}",
            "make runc the default; a pod that sets NVIDIA_VISIBLE_DEVICES bypasses its limits",
        )
    if view.nvidia_devices:
        yield note(
            "CDI",
            f"describes NVIDIA's devices: {', '.join(map(str, view.nvidia_devices))}",
            "check that no pod with our resources requests one by name: it would bypass its limits",
        )


def cgroups(view: ContainersView) -> Findings:
    if view.cgroups is None:
        yield note(
            "cgroups",
            "no hierarchy is mounted",
            "mount the node's /sys/fs/cgroup: without it the agent cannot map processes to pods",
        )
    else:
        driver = f"made by {view.driver}" if view.driver else "driver unknown, since no pod runs"
        yield well("cgroups", f"{view.cgroups}, {driver}")


def permissions(view: OwnView) -> Findings:
    if view.root:
        yield well("user", "root")
    else:
        yield wrong(
            "user", "not root", "run as root: the agent needs it for sockets and device nodes"
        )


def processes(view: OwnView) -> Findings:
    if view.sees_all_processes:
        yield well("processes", "all of the node's are visible")
    else:
        yield note(
            "processes",
            "only those of this PID namespace are visible",
            "set hostPID: true for the agent's pod, so that it finds the processes that NVML lists",
        )


def books(view: OwnView) -> Findings:
    if view.takes_books_back:
        yield well("memory accounting", "can be recovered from processes after a restart")
    else:
        yield note(
            "memory accounting",
            "cannot be recovered from processes of other users after a restart",
            "add CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; otherwise a container that runs then "
            "starts no new GPU process until its present ones have ended",
        )


def open_files(view: OwnView) -> Findings:
    if view.open_files < LEAST_FILES:
        yield note(
            "open files",
            f"at most {view.open_files}",
            f"allow {LEAST_FILES} or more (ulimit -n, LimitNOFILE): two for each container",
        )
    else:
        yield well("open files", f"at most {view.open_files}")


def directories(view: OwnView) -> Findings:
    if isinstance(view.directories, Unseen):
        yield wrong("volume.conf", view.directories.cause, "fix it, or remove --volume-config")
        return
    for directory in view.directories:
        yield _directory(directory)


def _directory(one: Directory) -> Finding:
    if one.obstacle:
        return wrong(
            one.purpose,
            f"{one.path}: {one.obstacle}",
            "give the agent a directory of the node that it can write to",
        )
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


def journal(view: OwnView) -> Findings:
    match view.granted:
        case None:
            yield well("journal", "none yet")
        case Unseen(cause):
            yield wrong("journal", cause, "the agent does not start until this is fixed")
        case granted:
            yield well("journal", f"containers granted: {granted}")
