"""The processes of a container, and the containers of a node, from cgroup files."""

from pathlib import Path

import pytest

from gpumanager.runtime.cgroup import (
    CgroupFiles,
    Membership,
    identify,
    read_places,
)
from tests.runtime.cgroup_node import CgroupNode
from tests.runtime.cgroup_texts import PATHS, v1, v2

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


def found_at(path: str) -> Membership:
    found = identify(v2(path))
    assert found is not None
    return found


def test_a_process_outside_of_our_pid_namespace_is_left_out(tmp_path: Path) -> None:
    node = CgroupNode(tmp_path)
    node.cgroup(CGROUPFS, 0, 12)

    assert node.mounted().processes(found_at(CGROUPFS)) == (12,)


def test_a_container_whose_cgroup_has_gone_has_no_processes(tmp_path: Path) -> None:
    assert CgroupNode(tmp_path).mounted().processes(found_at(CGROUPFS)) == ()


def test_below_a_cgroup_namespace_s_root_pods_are_found_where_it_is_mounted(tmp_path: Path) -> None:
    node = CgroupNode(tmp_path, root="/kind/node1")
    node.cgroup(CGROUPFS, 12)

    assert node.mounted().processes(found_at(f"/kind/node1{CGROUPFS}")) == (12,)


def test_a_process_that_has_ended_is_in_no_cgroup(tmp_path: Path) -> None:
    assert read_places(12, str(tmp_path)) == ""


def test_where_proc_tells_nothing_there_is_nothing(tmp_path: Path) -> None:
    files = CgroupFiles.here(str(tmp_path))

    assert files.version is None
