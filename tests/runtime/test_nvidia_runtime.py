"""Whether a node's configuration lets NVIDIA's runtime into every container."""

from pathlib import Path

import pytest

from gpumanager.runtime.nvidia_runtime import nvidia_defaults, nvidia_devices

CONTAINERD_1 = """
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "nvidia"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/nvidia-container-runtime"
"""
CONTAINERD_2 = """
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "nvidia-cdi"
"""
BESIDE = CONTAINERD_1.replace('name = "nvidia"', 'name = "runc"')
CRIO = """
[crio.runtime]
default_runtime = "nvidia"
"""


def written(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Path("/") / name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("etc/containerd/config.toml", CONTAINERD_1),
        ("etc/containerd/conf.d/99-nvidia.toml", CONTAINERD_2),
        ("var/lib/rancher/k3s/agent/etc/containerd/config.toml", CONTAINERD_1),
        ("etc/crio/crio.conf.d/99-nvidia.conf", CRIO),
        ("etc/docker/daemon.json", '{"default-runtime": "nvidia"}'),
    ],
)
def test_the_file_that_makes_it_the_default_is_named(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path, name, text)

    assert nvidia_defaults(tmp_path) == (path,)


def test_a_runtime_that_pods_must_ask_for_is_none_of_them(tmp_path: Path) -> None:
    written(tmp_path, "etc/containerd/config.toml", BESIDE)
    written(tmp_path, "etc/docker/daemon.json", '{"runtimes": {"nvidia": {"path": "/n"}}}')

    assert nvidia_defaults(tmp_path) == ()


def test_what_cannot_be_understood_is_passed_over(tmp_path: Path) -> None:
    written(tmp_path, "etc/containerd/config.toml", "= nvidia")
    written(tmp_path, "etc/docker/daemon.json", "nvidia")
    path = written(tmp_path, "etc/crio/crio.conf", CRIO)

    assert nvidia_defaults(tmp_path) == (path,)


def test_cdi_is_told_by_its_descriptions(tmp_path: Path) -> None:
    written(tmp_path, "etc/cdi/other.yaml", "kind: example.com/net\n")
    path = written(tmp_path, "run/cdi/nvidia.yaml", "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n")

    assert nvidia_devices(tmp_path) == (path,)
