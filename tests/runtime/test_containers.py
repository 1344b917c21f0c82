"""From a process to its container: once asked, and never for another process of the same pid."""

import os
from pathlib import Path

import pytest

from gpumanager.limits.processes import Process, find
from gpumanager.runtime import processes
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.processes import Containers
from tests.runtime.cgroup_node import CgroupNode
from tests.runtime.cgroup_texts import ID, PATHS, UID, v2

OTHER = UID.replace("7", "8")
POD = v2(PATHS["cgroupfs, burstable"])


@pytest.fixture
def node(tmp_path: Path) -> CgroupNode:
    return CgroupNode(tmp_path)


@pytest.fixture
def containers(node: CgroupNode) -> Containers:
    return Containers(node.mounted(), node.proc)


@pytest.fixture
def me() -> Process:
    found = find(os.getpid())
    assert found is not None
    return found


def test_a_process_is_known_by_its_cgroup(
    node: CgroupNode, containers: Containers, me: Process
) -> None:
    node.process(me.pid, POD)

    found = containers.of(me)

    assert found is not None
    assert (found.pod_uid, found.container_id) == (UID, ID)
    assert containers.of_pid(me.pid) == found


def test_it_is_asked_about_once(node: CgroupNode, containers: Containers, me: Process) -> None:
    node.process(me.pid, POD)
    first = containers.of(me)
    node.process(me.pid, v2("/"))

    assert containers.of(me) == first


def test_a_later_process_of_the_same_pid_is_not_taken_for_an_earlier_one(
    node: CgroupNode, containers: Containers, me: Process
) -> None:
    node.process(me.pid, v2(PATHS["cgroupfs, burstable"].replace(UID, OTHER)))
    earlier = containers.of(Process(me.pid, me.start_time - 1))
    node.process(me.pid, POD)

    now = containers.of_pid(me.pid)

    assert earlier is not None
    assert now is not None
    assert (earlier.pod_uid, now.pod_uid) == (OTHER, UID)


def test_of_a_pid_that_nobody_has_nothing_is_known(node: CgroupNode) -> None:
    gone = 2**22 + 1  # above the kernel's largest
    node.process(gone, POD)

    assert Containers(node.mounted(), node.proc).of_pid(gone) is None


def test_a_process_without_a_pod_stays_without(
    node: CgroupNode, containers: Containers, me: Process
) -> None:
    node.process(me.pid, v2("/user.slice"))

    assert containers.of(me) is None
    assert containers.of_pid(me.pid) is None


def test_only_so_many_answers_are_kept(
    node: CgroupNode, me: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "REMEMBERED_PROCESSES", 1)
    containers = Containers(node.mounted(), node.proc)
    parent = find(os.getppid())
    assert parent is not None
    node.process(me.pid, POD)
    node.process(parent.pid, POD)
    containers.of(me)
    containers.of(parent)
    node.process(me.pid, v2("/"))

    assert containers.of(me) is None  # forgotten, and asked again


def test_of_the_reader_itself_nothing_is_known() -> None:
    """Our own pod, if this runs in one, is left out."""
    assert Containers(CgroupFiles.here()).of_pid(os.getpid()) is None


def test_outside_of_containers_nobody_is_beside_a_process(
    node: CgroupNode, containers: Containers, me: Process
) -> None:
    node.process(me.pid, v2("/user.slice"))

    assert containers.beside(me) == ()
