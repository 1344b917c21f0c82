"""Who says HELLO at another pod's socket is told no, and counted; in doubt the caller is let in."""

import asyncio
import errno
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpumanager.ids import AllocationID, PodUID
from gpumanager.limits.processes import Process, find
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from tests import ROOT
from tests.limits.container_process import PROGRAMS, SECONDS, ContainerProcess
from tests.limits.metered_manager import Manage
from tests.limits.open_door import NAME, limit, open_descriptors, pids, say
from tests.limits.programs.hello_client import OBSERVER, Regions, hello
from tests.limits.running_pod import Running
from tests.runtime.cgroup_node import CgroupNode
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.running_pod_fixtures"]

OTHER = AllocationID("a2")
OURS = PodUID("7d1c5d3e-9a44-4e0b-8f57-0c2f9b1a6e21")
THEIRS = PodUID("99999999-9a44-4e0b-8f57-0c2f9b1a6e21")
SLICE = PodUID(OURS.replace("-", "_"))


def of(pod: PodUID) -> str:
    return f"/kubepods/burstable/pod{pod}/{'c' * 64}"


def check_of(directory: Path, owners: Mapping[AllocationID, PodUID], path: str) -> PodCheck:
    """One that finds this process in that cgroup."""
    node = CgroupNode(directory)
    node.process(os.getpid(), f"0::{path}\n")
    pods = {name: {owner} for name, owner in owners.items()}
    return PodCheck(Containers(node.mounted(), node.proc), pods.get)


@pytest.fixture
def me() -> Process:
    found = find(os.getpid())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("owners", "path", "stranger"),
    [
        pytest.param({NAME: OURS}, of(OURS), False, id="the container's own processes"),
        pytest.param({NAME: OURS}, of(THEIRS), True, id="a process of another pod"),
        pytest.param({NAME: OURS}, "/user.slice", False, id="a cgroup that names no pod"),
        pytest.param({}, of(THEIRS), False, id="before it is settled whose it is"),
        pytest.param(
            {NAME: SLICE}, f"/kubepods.slice/kubepods-pod{SLICE}.slice/x", False,
            id="systemd's underscores",
        ),
    ],
)  # fmt: skip
def test_a_caller_is_a_stranger_where_its_pod_is_known_to_be_another(
    tmp_path: Path, me: Process, owners: Mapping[AllocationID, PodUID], path: str, stranger: object
) -> None:
    check = check_of(tmp_path, owners, path)

    assert bool(check.other_pod(NAME, me)) is stranger
    assert check.refusals == int(bool(stranger))


def test_that_a_cgroup_names_no_pod_is_said_once(
    tmp_path: Path, me: Process, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    check = check_of(tmp_path, {NAME: OURS}, "/user.slice")

    for _ in range(2):
        check.other_pod(NAME, me)

    assert caplog.text.count("are not checked") == 1


@pytest.mark.parametrize(
    "message",
    [hello(), OBSERVER, hello(flags=lib.VCUDA_HELLO_KEEP)],
    ids=["process", "observer", "one that keeps its slot"],
)
async def test_a_stranger_that_insists_is_refused_and_counted_logged_once_and_costs_nothing(
    manage: Manage, tmp_path: Path, message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    check = check_of(tmp_path, {NAME: OURS}, of(THEIRS))
    door = await manage(peers=check).open(NAME, [limit()]) / "vcuda.sock"
    before = open_descriptors()

    for _ in range(3):
        answer = await say(door, message)
        assert answer is not None
        assert (answer.status, answer.descriptors) == (-errno.EACCES, ())
        assert answer.reason == f"this socket is another pod's; the caller is of pod {THEIRS}"

    assert check.refusals == 3
    assert open_descriptors() == before
    (said,) = (line for line in caplog.messages if "check which host directories" in line)
    assert f"{os.getpid()} of pod {THEIRS} connected to the socket of pod {OURS}" in said


class Moved:
    """A check that meets a caller which has ended since it connected."""

    def other_pod(self, allocation: AllocationID, process: Process) -> str | None:
        raise AssertionError(f"{process} of {allocation} has ended")


async def test_who_has_ended_meanwhile_leaves_nobody_a_view_of_another_s_books(
    manage: Manage,
) -> None:
    """A child that inherited the connection would get the descriptors."""
    door = await manage(peers=Moved()).open(NAME, [limit()]) / "vcuda.sock"
    program = "tests.limits.programs.orphaned_observer"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", program, door), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )

    output, _ = await asyncio.wait_for(process.communicate(), SECONDS)

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
    me: Process,
    owners: Mapping[AllocationID, PodUID],
    asked: list[AllocationID],
    owner: AllocationID | None,
) -> None:
    assert check_of(tmp_path, owners, of(OURS)).owner(asked, me) == owner


# With the kernel's own cgroups.


@pytest.fixture
async def guarded(manage: Manage) -> tuple[PodCheck, Path]:
    check = PodCheck(Containers(CgroupFiles.here()), {NAME: {OURS}}.get)
    return check, await manage(peers=check).open(NAME, [limit()]) / "vcuda.sock"


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


async def test_whose_processes_are_whose_is_not_read_from_the_books(manage: Manage) -> None:
    """A container writes its neighbour's process into a slot, and the manager starts again."""
    sockets, neighbour = manage(), find(os.getppid())
    assert neighbour is not None
    answer = await say(await sockets.open(NAME, [limit()]) / "vcuda.sock")
    assert answer is not None
    regions = Regions.of(answer)
    forged = regions.books.slots[answer.slot + 1]
    forged.pid, forged.start_time = neighbour.pid, neighbour.start_time
    regions.books.slot_limit = answer.slot + 2
    assert pids(sockets) == {os.getpid()}

    await sockets.stop()
    again = manage()
    await again.open(NAME, [limit()])

    assert pids(again) == {os.getpid()}
    assert regions.books.slots[answer.slot].pid == os.getpid()
    answer.close()
