"""From a process to its container: once asked, and never for another process of the same pid."""

import os
from pathlib import Path

import pytest

from gpumanager.ids import ContainerID, PodUID
from gpumanager.limits.processes import Process, find
from gpumanager.runtime import processes
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.processes import Containers, NamedContainers
from gpumanager.runtime.status import Container, LiveContainer
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
    node: CgroupNode, containers: Containers, me: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "REMEMBERED_PROCESSES", 1)
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


class Statuses:
    """A container runtime that counts how often it is asked."""

    def __init__(self, *known: Container) -> None:
        self.known = {one.container_id: one for one in known}
        self.asked = 0

    async def status(self, container_id: ContainerID) -> LiveContainer | None:
        self.asked += 1
        found = self.known.get(container_id)
        return None if found is None else LiveContainer(found)


CONTAINER = Container(ContainerID(ID), PodUID(UID), "lab", "trainer", "main")


async def test_a_container_s_names_are_asked_for_once(
    node: CgroupNode, containers: Containers, me: Process
) -> None:
    node.process(me.pid, POD)
    statuses = Statuses(CONTAINER)
    named = NamedContainers(containers, statuses)

    assert await named.of_pid(me.pid) == CONTAINER
    assert await named.of_pid(me.pid) == CONTAINER
    assert str(CONTAINER) == "lab/trainer (main)"
    assert statuses.asked == 1


async def test_a_container_that_the_runtime_does_not_know_yet_is_asked_for_again(
    node: CgroupNode, containers: Containers, me: Process
) -> None:
    node.process(me.pid, POD)
    statuses = Statuses()
    named = NamedContainers(containers, statuses)

    assert await named.of_pid(me.pid) is None
    statuses.known[CONTAINER.container_id] = CONTAINER
    assert await named.of_pid(me.pid) == CONTAINER


async def test_a_process_outside_of_containers_is_not_asked_for(
    node: CgroupNode, containers: Containers, me: Process
) -> None:
    node.process(me.pid, v2("/"))
    statuses = Statuses(CONTAINER)

    assert await NamedContainers(containers, statuses).of_pid(me.pid) is None
    assert statuses.asked == 0
