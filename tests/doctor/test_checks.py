"""What the doctor makes of a node: nothing but what it was shown."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpumanager.cli.support.inputs import directory
from gpumanager.doctor.about_container import about_container
from gpumanager.doctor.checks import XIDS, examine, is_wrong
from gpumanager.doctor.question import Unseen
from gpumanager.doctor.values import (
    Finding,
    InstalledDriver,
    ListeningSocket,
    Verdict,
    note,
    well,
    wrong,
)
from gpumanager.gpu.device_attributes import LoadedDriver
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.units import GIB, Bytes

VM = wrong("/etc/vm: /etc may not be written", "give it one that it can write to", "allocations")
SILENT = Unseen("nobody answers")


def gpu(index: int, numa_node: int | None = 0) -> Gpu:
    uuid, bus_id = GpuUUID(f"GPU-{index}"), f"00000000:{index + 1:02X}:00.0"
    return Gpu(index, index, uuid, bus_id, "T4", Bytes(16 * GIB), numa_node)


def two(bond: Bond, *numa_nodes: int | None) -> Topology:
    first, second = numa_nodes or (0, 0)
    return topology([gpu(0, first), gpu(1, second)], [[None, bond], [bond, None]])


WELL: dict[str, Any] = {
    "installed": InstalledDriver("555.58.02", Path("/usr/lib/libcuda.so.555.58.02")),
    "loaded": LoadedDriver("555.58.02", "12.5"),
    "topology": two(Bond(Level.PIX)),
    "missing_nodes": (),
    "missing_shims": (),
    "troubles": (),
    "unlimited": (),
    "hmm": False,
    "kubelet_socket": Path("/var/kubelet.sock"),
    "listener": ListeningSocket.LISTENS,
    "sockets": (ListeningSocket.LISTENS, ListeningSocket.LISTENS),
    "version": "v1.36.2",
    "pods": 3,
    "held": "30 of cores",
    "pod_resources": "List, Get",
    "runtime": "containerd 1.6.20 (CRI v1)",
    "cgroups": "v2",
    "root": True,
    "sees_all_processes": True,
    "takes_books_back": True,
    "open_files": 1 << 20,
    "directories": (well("/etc/vm, 1 GiB free", "allocations"),),
    "managers": None,
    "beside": False,
    "nvidia_defaults": (),
    "nvidia_devices": (),
    "granted": 2,
}


def not_well(node: dict[str, Any]) -> list[Finding]:
    return [finding for finding in examine(node) if finding.verdict is not Verdict.WELL]


def test_a_node_that_has_everything_is_well() -> None:
    findings = examine(WELL)

    assert not_well(WELL) == []
    assert not is_wrong(findings)
    found = {finding.part: finding.found for finding in findings}
    assert found["GPUs"] == "2 x T4, 16 GiB"
    assert found["topology"] == "PIX x 1; NUMA nodes 0"
    assert found["kubelet"] == "/var/kubelet.sock: listens; version v1.36.2"
    assert found["device checkpoint"] == "pods hold 30 of cores"
    assert found["device nodes"] == "all exist"
    alone = {one.part: one.found for one in examine(WELL | {"managers": ()})}
    assert alone["other GPU managers"] == "none found"


NO_NODE = (Path("/dev/nvidia-uvm"),)
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no driver": ({"installed": Unseen("no libcuda")}, "driver libraries", "--driver-root"),
    "silent driver": ({"loaded": SILENT, "topology": SILENT}, "driver", "nvidia-smi"),
    "half an update": ({"loaded": LoadedDriver("570.1", "12.8")}, "driver", "reboot"),
    "a GPU that does not answer": ({"topology": Unseen("GPU 3 is lost")}, "GPUs", "Xid"),
    "a lost GPU beside others": ({"troubles": (wrong("GPU 1: lost", XIDS),)}, "GPUs", "reset"),
    "GPUs whose health is not told": ({"troubles": SILENT}, "GPUs", "Xid"),
    "no GPU": ({"topology": topology([], [])}, "GPUs", "node selector"),
    "a missing node": ({"missing_nodes": NO_NODE}, "device nodes", "nvidia-modprobe"),
    "nothing built": ({"missing_shims": (Path("/x"),)}, "shims", "vcuda_shim.build"),
    "no kubelet": ({"listener": ListeningSocket.ABSENT}, "kubelet", "--device-plugin-path"),
    "a dead kubelet": ({"listener": ListeningSocket.DEAD}, "kubelet", "start the kubelet"),
    "a locked kubelet": ({"listener": ListeningSocket.DENIED}, "kubelet", "root"),
    "no list of pods": ({"pods": Unseen("status 403 Forbidden")}, "pods", "nodes/proxy"),
    "a broken checkpoint": ({"held": SILENT}, "device checkpoint", "restart the kubelet"),
    "not root": ({"root": False}, "user", "run as root"),
    "a broken volume.conf": ({"directories": SILENT}, "volume.conf", "--volume-config"),
    "a broken journal": ({"granted": SILENT}, "journal", "does not start"),
    "a read-only directory": ({"directories": (VM,)}, "allocations", "that it can write to"),
    "another device plugin": (
        {"managers": ("NVIDIA's device plugin (the node has nvidia.com/gpu: 8)",)},
        "other GPU managers",
        "one GPU manager on a node",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_once_with_what_to_do(case: str) -> None:
    fields, part, advice = WRONG[case]
    node = WELL | fields

    (finding,) = not_well(node)

    assert (finding.part, finding.verdict) == (part, Verdict.WRONG)
    assert advice in finding.advice
    assert is_wrong(examine(node))


NOTES: dict[str, tuple[dict[str, Any], str, str]] = {
    "two drivers": (
        {"installed": InstalledDriver("555.58.02", Path("/l"), ("several are installed",))},
        "driver libraries",
        "ldconfig",
    ),
    "no links known": ({"topology": two(Bond(Level.SYS))}, "topology", "any of them"),
    "no NUMA known": ({"topology": two(Bond(Level.PIX), 0, None)}, "topology", "aligned"),
    "no agent": (
        {"sockets": (ListeningSocket.ABSENT, ListeningSocket.DEAD)},
        "agent",
        "gpumanager agent",
    ),
    "half an agent": (
        {"sockets": (ListeningSocket.LISTENS, ListeningSocket.DEAD)},
        "agent",
        "start it",
    ),
    "a locked agent": ({"sockets": (ListeningSocket.DENIED,) * 2}, "agent", "root"),
    "no PodResources": ({"pod_resources": SILENT}, "PodResources", "--pod-resources-socket"),
    "no runtime": ({"runtime": SILENT}, "container runtime", "cgroup"),
    "NVIDIA's runtime for all": (
        {"nvidia_defaults": (Path("/etc/containerd/config.toml"),)},
        "NVIDIA's runtime",
        "make runc the default",
    ),
    "NVIDIA's devices by CDI": ({"nvidia_devices": (Path("/etc/cdi/n.yaml"),)}, "CDI", "by name"),
    "no cgroups": ({"cgroups": None}, "cgroups", "/sys/fs/cgroup"),
    "own processes": ({"sees_all_processes": False}, "processes", "hostPID"),
    "no capability": ({"takes_books_back": False}, "memory accounting", "CAP_SYS_PTRACE"),
    "another device plugin, as wanted": (
        {"managers": ("HAMi (x)",), "beside": True},
        "other GPU managers",
        "--allow-other-managers",
    ),
    "no right to look for others": ({"managers": SILENT}, "other GPU managers", "`get` on nodes"),
    "graphics in shares": (
        {"unlimited": ("OpenGL and Vulkan", "EGL")},
        "unlimited libraries",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    "pageable memory": ({"hmm": True}, "pageable memory (HMM)", "uvm_disable_hmm=1"),
    "a kernel that does not say": ({"hmm": SILENT}, "pageable memory (HMM)", "uvm_disable_hmm=1"),
    "memory of the machine": (
        {"troubles": (note("GPU-0: no figure", "set --reserved-memory"),)},
        "GPUs",
        "--reserved-memory",
    ),
    "few files": ({"open_files": 1024}, "open files", "LimitNOFILE"),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_merely_makes_something_worse_is_a_note(case: str) -> None:
    fields, part, advice = NOTES[case]
    node = WELL | fields

    (finding,) = not_well(node)

    assert (finding.part, finding.verdict) == (part, Verdict.NOTE)
    assert advice in finding.advice
    assert not is_wrong(examine(node))


FRESH: dict[str, dict[str, Any]] = {
    "no pod ever had a GPU": {"held": None, "granted": None},
    "the token may not read metrics": {"version": Unseen("status 403 Forbidden")},
    "an older kubelet": {"pod_resources": "List"},
    "GPUs far from each other": {"topology": two(Bond(Level.SYS), 0, 1)},
    "no other manager": {"managers": ()},
    "one GPU": {"topology": topology([gpu(0)], [[None]])},
}


@pytest.mark.parametrize("case", FRESH)
def test_what_is_merely_not_there_yet_is_well(case: str) -> None:
    assert not_well(WELL | FRESH[case]) == []


@pytest.mark.parametrize(
    ("free", "flags", "found"),
    [
        (GIB, 0, "1 GiB free"),
        (10 << 20, 0, "10 MiB free; make room: less than 64 MiB is too little to grant anything"),
        (GIB, os.ST_NOEXEC, "mounted noexec; containers cannot load"),
    ],
)
def test_a_full_disk_and_one_without_code_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, flags: int, found: str
) -> None:
    disk = SimpleNamespace(f_bavail=free, f_frsize=1, f_flag=flags)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)

    finding = directory("driver volumes", tmp_path / "new", for_code=True)

    assert found in f"{finding.found}; {finding.advice}"
    assert (finding.verdict is Verdict.WRONG) == (";" in found)


@pytest.mark.parametrize(
    ("libcuda", "verdict", "found"),
    [
        (Path("/usr/local/nvidia/lib64/libvcuda-shim-1f3a.so"), Verdict.WELL, "libvcuda-shim"),
        (Path("/usr/lib/libcuda.so.550.54.14"), Verdict.WRONG, "which no limit holds for"),
        (Unseen("libcuda.so.1: cannot open"), Verdict.WRONG, "it lies in /usr/local/nvidia/lib64"),
    ],
)
def test_in_a_container_the_library_that_a_program_finds_is_the_finding(
    libcuda: Path | Unseen, verdict: Verdict, found: str
) -> None:
    finding = about_container(libcuda)

    assert finding.verdict is verdict
    assert found in finding.found
    assert ("ldconfig" in finding.advice) == (verdict is Verdict.WRONG)
