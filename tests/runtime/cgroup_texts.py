"""Cgroup paths as nodes of every kind have them, for one pod and one container."""

UID = "7d1c5d3e-9a44-4e0b-8f57-0c2f9b1a6e21"
SLICE = UID.replace("-", "_")
STATIC = "0f9ad9e1b8b3f2f9d27d0f4c27fdb4f3"
ID = "c0ffee" + "0" * 58

PATHS = {
    "cgroupfs, guaranteed": f"/kubepods/pod{UID}/{ID}",
    "cgroupfs, burstable": f"/kubepods/burstable/pod{UID}/{ID}",
    "cgroupfs, CRI-O": f"/kubepods/besteffort/pod{UID}/crio-{ID}",
    "systemd, guaranteed": f"/kubepods.slice/kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope",
    "systemd, burstable": (
        "/kubepods.slice/kubepods-burstable.slice/"
        f"kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "systemd, Docker": (
        "/kubepods.slice/kubepods-besteffort.slice/"
        f"kubepods-besteffort-pod{SLICE}.slice/docker-{ID}.scope"
    ),
    "systemd, CRI-O with a cgroup below": (
        "/kubepods.slice/kubepods-burstable.slice/"
        f"kubepods-burstable-pod{SLICE}.slice/crio-{ID}.scope/container"
    ),
    "systemd's kubelet, cgroupfs' containerd": (
        f"/system.slice/containerd.service/kubepods-burstable-pod{SLICE}.slice:cri-containerd:{ID}"
    ),
    "kind, cgroupfs": f"/docker/{'ab' * 32}/kubelet/kubepods/burstable/pod{UID}/{ID}",
    "kind, systemd": (
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "a cgroup root": f"/node/workload/kubepods/burstable/pod{UID}/{ID}",
    "from a cgroup namespace": f"/../../../burstable/pod{UID}/{ID}",
    "from one beside it": f"/../../kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope",
    "what the container makes itself": f"/kubepods/burstable/pod{UID}/{ID}/my/own",
    "a removed one": f"/kubepods/burstable/pod{UID}/{ID} (deleted)",
}
"""Each is of container ID of pod UID."""

V1_CONTROLLERS = ("name=systemd", "pids", "cpu,cpuacct", "memory", "devices", "freezer")


def v2(path: str) -> str:
    return f"0::{path}\n"


def v1(path: str) -> str:
    rows = reversed(list(enumerate(V1_CONTROLLERS, 1)))
    return "".join(f"{number}:{name}:{path}\n" for number, name in rows)


def hybrid(path: str) -> str:
    """As runc leaves it: v2 without controllers, and nobody put there."""
    return v1(path) + v2("/system.slice/containerd.service")
