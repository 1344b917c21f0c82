"""Allocations that are handed over as CDI devices: a file with each, and none without one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumanager.isolation.cdi import ALLOCATION, AllocationFiles, CdiFiles
from tests.deviceplugin.admission.admission_node import JOURNAL, Crash, Node, container, gpus, pod

STEPS = 12
"""More than an admission, or an end, takes."""


class MortalFiles(CdiFiles):
    """The node stops at the step `at`, before, within or after a write or a removal."""

    at: int | None = None
    taken = 0

    def step(self) -> None:
        if self.taken == self.at:
            raise Crash
        self.taken += 1

    def write(self, claim: str, text: str) -> None:
        self.step()
        path = self.path(claim)
        path.with_name(f"{path.name}.tmp").write_text(text[:20])
        self.step()
        super().write(claim, text)
        self.step()

    def remove(self, claim: str) -> None:
        self.step()
        super().remove(claim)
        self.step()


class CdiNode(Node):
    """Its kubelet and allocator as others', with files that may be the last ones written."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, gpus(2))
        self.files = MortalFiles(directory / "cdi", ALLOCATION)
        self.files.directory.mkdir()
        self.handover = AllocationFiles(self.files, lambda: self.topology.gpus, wanted=True)
        self.allocator = self.new_allocator()

    async def restart_agent(self) -> None:
        self.files.at = None
        await super().restart_agent()

    def handed_over(self) -> set[str]:
        """What lies in the directory, whatever it is."""
        return {path.name for path in self.files.directory.iterdir()}

    def granted(self) -> set[str]:
        live = self.allocator.node.journal.live()
        return {self.files.path(one.id).name for one in live if one.isolation}


@pytest.fixture
async def node(tmp_path: Path) -> CdiNode:
    node = CdiNode(tmp_path)
    await node.allocator.recover()
    return node


def edits(path: Path) -> Any:
    (device,) = json.loads(path.read_text())["devices"]
    return device["containerEdits"]


async def test_the_answer_names_a_device_and_its_file_says_the_rest(node: CdiNode) -> None:
    asked = pod("a", container(30, 4))
    await node.run(asked)

    (grant,) = node.allocator.node.journal.live()
    answer = node.answers[asked.uid, "main"]
    assert answer.cdi == (f"gpu.tencent.com/allocation={grant.id}",)
    assert (answer.mounts, answer.devices) == ((), ())
    assert answer.envs["VCUDA_ALLOCATION"] == grant.id
    written = edits(node.files.path(grant.id))
    assert {one["path"] for one in written["deviceNodes"]} >= {"/dev/nvidia0", "/dev/nvidiactl"}
    assert "/etc/vcuda" in {one["containerPath"] for one in written["mounts"]}


async def test_a_file_goes_with_its_allocation(node: CdiNode) -> None:
    ended, stays = pod("ended", container(20, 2)), pod("stays", container(100, 0))
    await node.run(ended)
    await node.run(stays)
    node.delete(ended.uid)
    node.clock.now += 60

    await node.allocator.reconcile()
    await node.allocator.reconcile()

    assert len(node.allocator.node.journal.live()) == 1
    assert node.handed_over() == node.granted()


async def test_what_a_reboot_takes_is_written_again_and_the_same(node: CdiNode) -> None:
    await node.run(pod("share", container(30, 4)))
    await node.run(pod("whole", container(100, 0)))
    before = {path.name: path.read_text() for path in node.files.directory.iterdir()}
    for path in node.files.directory.iterdir():
        path.unlink()

    await node.restart_agent()

    after = {path.name: path.read_text() for path in node.files.directory.iterdir()}
    assert after == before
    assert len(after) == 2


async def test_files_go_with_their_allocations_when_they_are_not_wanted_any_more(
    node: CdiNode,
) -> None:
    await node.run(pod("a", container(30, 4)))
    node.handover = AllocationFiles(node.files, lambda: node.topology.gpus, wanted=False)
    await node.restart_agent()
    assert node.handed_over() == node.granted() != set()

    plain = pod("b", container(20, 2))
    await node.run(plain)
    assert node.answers[plain.uid, "main"].mounts
    await node.allocator.node.store.release(one.id for one in node.allocator.node.journal.live())

    assert node.handed_over() == set()


async def test_without_the_journal_files_of_running_containers_stay(node: CdiNode) -> None:
    await node.run(pod("a", container(30, 4)))
    before = node.handed_over()
    (node.directory / JOURNAL).unlink()

    await node.restart_agent()

    assert node.handed_over() == node.granted() == before


@pytest.mark.parametrize("at", range(STEPS))
async def test_an_agent_that_dies_while_it_hands_over_leaves_no_file(
    node: CdiNode, at: int
) -> None:
    """Its pod is refused by the kubelet, which never asks for it again."""
    await node.run(pod("before", container(30, 4)))
    refused = pod("a", container(30, 4))
    node.files.at, node.files.taken = at, 0
    died = await dies(lambda: node.admit(refused))

    await node.restart_agent()
    assert node.handed_over() == node.granted()
    node.delete(refused.uid)
    node.forget_ended()
    node.write_checkpoint()
    node.clock.now += 60
    await node.allocator.reconcile()
    await node.allocator.reconcile()

    assert died == (at < 3)
    assert node.handed_over() == node.granted()
    assert len(node.granted()) == 1


@pytest.mark.parametrize("at", range(STEPS))
async def test_an_agent_that_dies_while_it_releases_leaves_no_file(node: CdiNode, at: int) -> None:
    ended = pod("a", container(30, 4))
    await node.run(ended)
    (first,) = node.allocator.node.journal.live()
    await node.run(pod("b", container(30, 4)))
    node.delete(ended.uid)
    node.forget_ended()
    node.files.at, node.files.taken = at, 0
    died = await dies(lambda: node.allocator.node.store.release([first.id]))

    await node.restart_agent()

    assert died == (at < 2)
    assert node.handed_over() == node.granted()
    assert len(node.granted()) == 1


async def dies(work: Callable[[], Any]) -> bool:
    try:
        await work()
    except Crash:
        return True
    return False
