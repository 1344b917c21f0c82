"""Who says HELLO at another pod's socket is told no, and counted; in doubt the caller is let in."""

import asyncio
import contextlib
import errno
import logging
import os
import struct
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID, PodUID
from gpumanager.limits.processes import Process, find
from gpumanager.limits.values import Limit
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.units import GIB, Bytes
from tests import ROOT
from tests.limits.container_process import PROGRAMS, SECONDS, ContainerProcess
from tests.limits.open_door import virtual_manager
from tests.limits.programs.hello_client import OBSERVER, Answer, exchange, hello
from tests.limits.running_pod import Running
from vcuda_shim._shim import ffi, lib

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.running_pod_fixtures"]

NAME, OTHER = AllocationID("a1"), AllocationID("a2")
LIMIT = Limit(GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0"), Bytes(GIB), 30, 30)
OURS = PodUID("7d1c5d3e-9a44-4e0b-8f57-0c2f9b1a6e21")
THEIRS = PodUID("99999999-9a44-4e0b-8f57-0c2f9b1a6e21")


@dataclass
class Node:
    """A virtual manager whose caller, this process, is in the cgroup that `proc` says."""

    proc: Path
    owners: Mapping[AllocationID, PodUID] = field(default_factory=dict)

    def __post_init__(self) -> None:
        containers = Containers(CgroupFiles((), frozenset()), str(self.proc))
        self.check = PodCheck(containers, self._of)

    def _of(self, name: AllocationID) -> set[PodUID]:
        return {self.owners[name]} if name in self.owners else set()

    def caller_is_in(self, path: str) -> None:
        directory = self.proc / str(os.getpid())
        directory.mkdir(parents=True)
        (directory / "cgroup").write_text(f"0::{path}\n")

    @contextlib.asynccontextmanager
    async def door(self) -> AsyncIterator[Path]:
        """The socket, served."""
        sockets = virtual_manager(self.proc / "vm", peers=self.check)
        try:
            yield await sockets.open(NAME, [LIMIT]) / "vcuda.sock"
        finally:
            await sockets.stop()

    async def say(self, message: bytes) -> Answer:
        """What this process is answered."""
        async with self.door() as door:
            answer = await asyncio.to_thread(exchange, door, message)
        assert answer is not None
        answer.close()
        return answer


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def settled(root: Path) -> Node:
    return Node(root, {NAME: OURS})


def of(pod: PodUID) -> str:
    return f"/kubepods/burstable/pod{pod}/{'c' * 64}"


async def test_the_container_s_own_processes_are_welcome(settled: Node) -> None:
    settled.caller_is_in(of(OURS))

    assert (await settled.say(hello())).status == 0
    assert settled.check.refusals == 0


@pytest.mark.parametrize(
    "message",
    [hello(), OBSERVER, hello(flags=lib.VCUDA_HELLO_KEEP)],
    ids=["process", "observer", "one that keeps its slot"],
)
async def test_a_process_of_another_pod_is_refused_and_counted(
    settled: Node, message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    settled.caller_is_in(of(THEIRS))

    answer = await settled.say(message)

    assert (answer.status, answer.descriptors) == (-errno.EACCES, ())
    assert answer.reason == f"this socket is another pod's; the caller is of pod {THEIRS}"
    assert settled.check.refusals == 1
    assert (
        f"process {os.getpid()} of pod {THEIRS} connected to the socket of pod {OURS}"
        in caplog.text
    )


async def test_a_stranger_that_insists_is_counted_each_time_logged_once_and_costs_nothing(
    settled: Node, caplog: pytest.LogCaptureFixture
) -> None:
    settled.caller_is_in(of(THEIRS))

    async with settled.door() as door:
        before = descriptors()
        for _ in range(3):
            await asyncio.to_thread(exchange, door, hello())
        after = descriptors()

    assert settled.check.refusals == 3
    assert after == before
    assert caplog.text.count("check which host directories") == 1


async def test_a_process_whose_cgroup_names_no_pod_is_let_in_and_that_is_said_once(
    settled: Node, caplog: pytest.LogCaptureFixture
) -> None:
    settled.caller_is_in("/user.slice")
    caplog.set_level(logging.INFO)

    assert (await settled.say(hello())).status == 0
    assert (await settled.say(hello())).status == 0
    assert caplog.text.count("are not checked") == 1
    assert settled.check.refusals == 0


async def test_before_it_is_settled_whose_it_is_anybody_may_call(root: Path) -> None:
    node = Node(root)
    node.caller_is_in(of(THEIRS))

    assert (await node.say(hello())).status == 0


async def test_systemd_s_underscores_are_no_difference(root: Path) -> None:
    node = Node(root, {NAME: PodUID(OURS.replace("-", "_"))})
    node.caller_is_in(f"/kubepods.slice/kubepods-pod{OURS.replace('-', '_')}.slice/x")

    assert (await node.say(hello())).status == 0


class Moved:
    """A check that meets a caller which has ended since it connected."""

    def other_pod(self, allocation: AllocationID, process: Process) -> str | None:
        raise AssertionError(f"{process} of {allocation} has ended")


async def test_who_has_ended_meanwhile_leaves_nobody_a_view_of_another_s_books(root: Path) -> None:
    """A child that inherited the connection would get the descriptors."""
    sockets = virtual_manager(root, peers=Moved(), deadline_seconds=SECONDS)
    try:
        door = await sockets.open(NAME, [LIMIT]) / "vcuda.sock"
        program = "tests.limits.programs.orphaned_observer"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", program, door), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    finally:
        await sockets.stop()

    assert int(output) == -errno.ESRCH


@pytest.mark.parametrize(
    ("owners", "asked", "owner"),
    [
        ({NAME: OURS, OTHER: THEIRS}, [NAME, OTHER], NAME),
        ({NAME: OURS, OTHER: THEIRS}, [OTHER], None),
        ({NAME: OURS, OTHER: OURS}, [NAME, OTHER], None),
        ({}, [NAME], None),
    ],
    ids=["its pod's", "not among them", "two of its pod", "nothing is known"],
)
def test_a_process_belongs_to_the_only_allocation_of_its_pod(
    tmp_path: Path,
    owners: Mapping[AllocationID, PodUID],
    asked: list[AllocationID],
    owner: AllocationID | None,
) -> None:
    node = Node(tmp_path, owners)
    node.caller_is_in(f"/kubepods/burstable/pod{OURS}/{'ab' * 32}")
    me = find(os.getpid())
    assert me is not None

    assert node.check.owner(asked, me) == owner


# With the kernel's own cgroups.


@pytest.fixture
async def guarded(root: Path) -> AsyncIterator[tuple[PodCheck, Path]]:
    check = PodCheck(Containers(CgroupFiles.here()), {NAME: {OURS}}.get)
    sockets = virtual_manager(root, peers=check)
    yield check, await sockets.open(NAME, [LIMIT]) / "vcuda.sock"
    await sockets.stop()


async def said_from(place: Path, door: Path) -> list[object]:
    """The answer to a process that was moved to a cgroup before it became the caller."""
    pipe = asyncio.subprocess.PIPE
    words = ("mkdir -p $0 && echo $$ > $0/cgroup.procs && exec $1 $2 $3", place, sys.executable)
    process = ContainerProcess(
        await asyncio.create_subprocess_exec(
            "sh", "-c", *words, PROGRAMS / "hello_client.py", door, stdin=pipe, stdout=pipe
        )
    )
    try:
        answer: list[object] = await process.answer()
        return answer
    finally:
        await process.kill()


@pytest.mark.cgroups
async def test_the_kernel_itself_tells_whose_a_caller_is(
    cgroup: Path, guarded: tuple[PodCheck, Path]
) -> None:
    check, door = guarded
    pods = cgroup / "kubepods/burstable"

    welcome = await said_from(pods / f"pod{OURS}" / ("a" * 64), door)
    refused = await said_from(pods / f"pod{THEIRS}" / ("b" * 64), door)

    assert welcome[0] == 0
    assert refused[0] == -errno.EACCES
    assert check.refusals == 1


@pytest.mark.cgroups
@pytest.mark.namespaces
async def test_a_real_agent_knows_from_its_journal_whose_a_socket_is(
    cgroup: Path, running: Running
) -> None:
    door = running.files / "vcuda.sock"

    own = await said_from(cgroup / f"kubepods/pod{running.uid}" / ("a" * 64), door)
    other = await said_from(cgroup / f"kubepods/pod{THEIRS}" / ("b" * 64), door)

    assert own[0] == 0
    assert other[0] == -errno.EACCES


async def test_a_process_of_another_pod_that_the_books_name_is_not_taken_up(settled: Node) -> None:
    """A container writes its neighbour's process into a slot, and the manager starts again."""
    settled.caller_is_in(of(THEIRS))
    async with settled.door() as door:
        books = door.parent / "books"
    me = find(os.getpid())
    assert me is not None
    with books.open("r+b") as file:
        file.seek(ffi.offsetof("struct vcuda_books", "slots"))
        file.write(struct.pack("<IIQ", me.pid, 0, me.start_time))
        file.seek(ffi.offsetof("struct vcuda_books", "slot_limit"))
        file.write(struct.pack("<I", 1))

    sockets = virtual_manager(settled.proc / "vm", peers=settled.check)
    await sockets.open(NAME, [LIMIT])

    assert sockets.usage(NAME).processes == ()
    await sockets.stop()


async def test_whose_processes_are_whose_is_not_read_from_the_books(root: Path) -> None:
    sockets = virtual_manager(root)
    directory = await sockets.open(NAME, [LIMIT])
    with (directory / "books").open("r+b") as file:
        file.seek(ffi.offsetof("struct vcuda_books", "slots"))
        file.write(struct.pack("<IIQ", 4711, 0, 1))
        file.seek(ffi.offsetof("struct vcuda_books", "slot_limit"))
        file.write(struct.pack("<I", 1))

    assert sockets.usage(NAME).processes == ()
    await sockets.stop()
