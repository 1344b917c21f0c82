"""The processes of a container, and the containers of a node, from cgroup files."""

from pathlib import Path

import pytest

from gpumanager.runtime.cgroup import (
    CgroupDriver,
    CgroupFiles,
    CgroupVersion,
    identify,
    read_places,
)
from tests.runtime.cgroup_node import CgroupNode
from tests.runtime.cgroup_texts import ID, PATHS, STATIC, UID, v1, v2

OTHER_ID = "beef" + "1" * 60
SYSTEMD = PATHS["systemd, burstable"]
CGROUPFS = PATHS["cgroupfs, burstable"]


@pytest.mark.parametrize("unified", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("path", [SYSTEMD, CGROUPFS, PATHS["kind, systemd"]])
def test_a_container_has_the_processes_of_its_cgroup_and_of_those_below(
    tmp_path: Path, path: str, *, unified: bool
) -> None:
    node = CgroupNode(tmp_path, unified)
    node.cgroup(path, 30, 12)
    node.cgroup(f"{path}/own/deeper", 99)
    node.cgroup(path.rpartition("/")[0], 7)
    found = identify((v2 if unified else v1)(path))
    assert found is not None

    assert node.mounted().processes(found) == (12, 30, 99)


def test_a_process_outside_of_our_pid_namespace_is_left_out(tmp_path: Path) -> None:
    node = CgroupNode(tmp_path)
    node.cgroup(CGROUPFS, 0, 12)
    found = identify(v2(CGROUPFS))
    assert found is not None

    assert node.mounted().processes(found) == (12,)


def test_a_container_whose_cgroup_has_gone_has_no_processes(tmp_path: Path) -> None:
    found = identify(v2(CGROUPFS))
    assert found is not None

    assert CgroupNode(tmp_path).mounted().processes(found) == ()


@pytest.mark.parametrize("unified", [True, False], ids=["v2", "v1"])
def test_all_pods_and_containers_are_found_once(tmp_path: Path, *, unified: bool) -> None:
    node = CgroupNode(tmp_path, unified)
    node.cgroup(SYSTEMD, 12)
    node.cgroup(SYSTEMD.replace(ID, OTHER_ID), 13)
    node.cgroup(f"/kubepods.slice/kubepods-pod{STATIC}.slice")
    node.cgroup("/system.slice/sshd.service", 1)

    found = [(one.pod_uid, one.container_id) for one in node.mounted().members()]

    assert sorted(found, key=str) == sorted(
        [(UID, None), (UID, ID), (UID, OTHER_ID), (STATIC, None)], key=str
    )


@pytest.mark.parametrize(
    ("path", "driver"),
    [(SYSTEMD, CgroupDriver.SYSTEMD), (CGROUPFS, CgroupDriver.CGROUPFS), ("/x", None)],
)
def test_the_driver_is_that_of_the_pods_there_are(
    tmp_path: Path, path: str, driver: CgroupDriver | None
) -> None:
    node = CgroupNode(tmp_path)
    node.cgroup(path)

    assert node.mounted().version is CgroupVersion.V2
    assert node.mounted().driver() is driver


def test_below_a_cgroup_namespace_s_root_pods_are_found_where_it_is_mounted(tmp_path: Path) -> None:
    node = CgroupNode(tmp_path, root="/kind/node1")
    node.cgroup(CGROUPFS, 12)
    (found,) = [one for one in node.mounted().members() if one.container_id]

    assert found.place.path == f"/kind/node1{CGROUPFS}"
    assert node.mounted().processes(found) == (12,)


def test_a_process_that_has_ended_is_in_no_cgroup(tmp_path: Path) -> None:
    assert read_places(12, str(tmp_path)) == ""


def test_where_proc_tells_nothing_there_is_nothing(tmp_path: Path) -> None:
    files = CgroupFiles.here(str(tmp_path))

    assert files.version is None
    assert list(files.members()) == []
