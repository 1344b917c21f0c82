"""Earlier driver directories go, but never one that a running container has mounted."""

from pathlib import Path

import pytest

from gpumanager.agent.host import prune_drivers
from gpumanager.ids import ContainerID, PodUID
from gpumanager.runtime.status import Bind, Container, LiveContainer
from gpumanager.sim.in_memory import SimulatedContainers
from gpumanager.volume.mirror import mounted, prune_unused
from gpumanager.volume.values import DriverVolumes

OLD, OLDER, NOW = "nvidia-00000000000000a1", "nvidia-00000000000000a0", "nvidia-00000000000000a2"


@pytest.fixture
def volumes(tmp_path: Path) -> DriverVolumes:
    base = tmp_path / "vdriver"
    for name in (OLD, OLDER, NOW, "origin-00000000000000b0"):
        (base / name / "lib64").mkdir(parents=True)
    (base / "nvidia").symlink_to(NOW)
    (base / "origin").symlink_to("origin-00000000000000b0")
    return DriverVolumes(base / "nvidia", base / "nvidia-compute", base / "origin", "555.58.02")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


def process(proc: Path, pid: int, *mounts: tuple[str, str]) -> None:
    (proc / str(pid)).mkdir(parents=True)
    lines = [f"36 35 8:1 {root} {point} ro,relatime - ext4 /dev/sda rw" for root, point in mounts]
    (proc / str(pid) / "mountinfo").write_text("\n".join(lines) + "\n")


def left(volumes: DriverVolumes) -> set[str]:
    return {path.name for path in volumes.shared.parent.iterdir() if path.name[0] != "."}


def test_what_a_container_has_mounted_stays(volumes: DriverVolumes, proc: Path) -> None:
    process(proc, 7, ("/", "/"), (f"/etc/vdriver/{OLD}", "/usr/local/nvidia"))

    removed = prune_unused(volumes, [7], proc)

    assert [path.name for path in removed] == [OLDER]
    assert left(volumes) == {"nvidia", "origin", OLD, NOW, "origin-00000000000000b0"}


def test_without_containers_only_what_is_current_stays(volumes: DriverVolumes, proc: Path) -> None:
    prune_unused(volumes, [], proc)

    assert left(volumes) == {"nvidia", "origin", NOW, "origin-00000000000000b0"}


@pytest.mark.parametrize("pid", [0, 8, 9])
def test_nothing_goes_where_somebodys_mounts_are_not_known(
    volumes: DriverVolumes, proc: Path, pid: int
) -> None:
    process(proc, 9, ("/", "/"))

    assert prune_unused(volumes, [pid], proc) == ()
    assert OLD in left(volumes)


def test_blanks_in_paths_are_understood(proc: Path) -> None:
    process(proc, 7, (r"/with\040blank/nvidia\0401", "/usr/local/nvidia"))

    assert mounted([7], proc) == frozenset({"nvidia 1"})


async def test_a_container_whose_process_is_not_told_keeps_all(volumes: DriverVolumes) -> None:
    who = Container(ContainerID("c"), PodUID("u"), "default", "a", "main")
    driver = Bind(str(volumes.shared), "/usr/local/nvidia")

    await prune_drivers(volumes, SimulatedContainers([LiveContainer(who, mounts=(driver,))]))
    assert OLD in left(volumes)

    await prune_drivers(volumes, SimulatedContainers([LiveContainer(who)]))
    assert OLD not in left(volumes)
