"""Who has GPU memory that no limit holds: what is found, what is not, and what is done about it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from gpumanager.gpu.health.reports import NodeEvent
from gpumanager.gpu.values import bare
from gpumanager.grants.grant import Claimant, ClaimedDevice, ClaimSource, Grant, Share
from gpumanager.ids import PodUID
from gpumanager.limits.processes import Process, find
from gpumanager.monitor.look import Busy, MeterTotals, container_view, latest
from gpumanager.monitor.snapshot import Resident, Snapshot
from gpumanager.monitor.unlimited.audit import (
    LOOKS_BEFORE_VERDICT,
    TOLERANCE,
    UnlimitedKind,
    mismatches,
    suspects,
)
from gpumanager.monitor.unlimited.auditor import Auditor, AuditPolicy, end
from gpumanager.monitor.unlimited.residents import by_holder, residents, slots_by_process
from gpumanager.runtime.cgroup import Membership
from gpumanager.units import GIB, MIB, Bytes
from tests.monitor.monitor_world import (
    FIRST,
    NODE,
    SECOND,
    claimant,
    member,
    resident,
    share,
    usage,
    whole,
)
from tests.waiting import until

OWNER = claimant(uid="7d1c5d3e-9a44-4e0b-8f57-0c2f9b1a6e21")
OTHER = claimant("other", uid="99999999-9a44-4e0b-8f57-0c2f9b1a6e21")
ONE = share(OWNER)
BIG = whole(claimant("big", uid="88888888-9a44-4e0b-8f57-0c2f9b1a6e21"))


def seen(*present: Resident, promises: Sequence[Grant] = (ONE, BIG)) -> Snapshot:
    books = {one.id: usage(one) for one in promises if not one.exclusive}
    meters = MeterTotals(books, by_holder(present), Busy())
    views = latest(filter(None, (container_view(NODE, one, meters) for one in promises)))
    return Snapshot(at=0.0, node="n", answered=True, containers=views, residents=present)


def booked(pid: int, held: int, in_books: int | None = None) -> Resident:
    """A process of the container that its books know."""
    size = Bytes(held if in_books is None else in_books)
    return resident(pid, held, allocation=ONE.id, booked=size)


SIDE = share(replace(OWNER, container="side"), "a2", cores=10, first=40)
WAITING = share(None, candidate=OWNER)
STRANGER = resident(3, GIB, of=member(OTHER))


def found(*present: Resident, promises: Sequence[Grant] = (ONE, BIG)) -> list[tuple[object, ...]]:
    """Kind, pid, whether it is certain, and the bytes that were taken, of each suspect."""
    return [
        (str(one.kind.value), one.process.pid, one.certain, one.taken)
        for one in suspects(seen(*present, promises=promises))
    ]


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        pytest.param([booked(1, 600 * MIB), booked(2, 424 * MIB)], [],
                     id="processes within the limit are no suspects"),
        pytest.param([booked(1, 900 * MIB, in_books=100 * MIB)], [],
                     id="what the manager charges within a second is no breach below the limit"),
        pytest.param([booked(1, GIB + TOLERANCE)], [], id="a moment's rounding is tolerated"),
        pytest.param([booked(1, GIB + TOLERANCE + 1)], [("over-limit", 1, True, TOLERANCE + 1)],
                     id="more than rounding is not"),
        pytest.param([booked(1, 600 * MIB), booked(2, 700 * MIB)],
                     [("over-limit", 2, True, 276 * MIB)],
                     id="the process that holds the most is told"),
        pytest.param([resident(1, None, allocation=ONE.id, booked=Bytes(2 * GIB))], [],
                     id="a size that the driver does not tell accuses nobody"),
        pytest.param(
            [resident(1, 2 * GIB, allocation=ONE.id, booked=Bytes(0), adopted=True)],
            [("over-limit", 1, False, GIB)],
            id="a slot that containers may have written does not prove whose a process is",
        ),
        pytest.param([resident(1, 2 * GIB, allocation=ONE.id, booked=Bytes(0), of=member(OTHER))],
                     [("over-limit", 1, False, GIB)], id="nor does one of another pod's process"),
        pytest.param(
            [
                booked(1, 300 * MIB),
                resident(3, MIB, allocation=ONE.id, of=member(OWNER)),
                resident(4, None, allocation=ONE.id, of=member(OWNER)),
            ],
            [("unbooked", 3, True, MIB), ("unbooked", 4, True, 0)],
            id="a process without a session is told whatever it holds",
        ),
        pytest.param([STRANGER], [("stranger", 3, True, GIB)], id="another pod's process"),
        pytest.param([resident(3, GIB)], [("stranger", 3, False, GIB)], id="no pod that is known"),
        pytest.param([resident(3, GIB, of=member(OTHER, container=None))],
                     [("stranger", 3, False, GIB)],
                     id="a process whose container is not named is in doubt"),
        pytest.param(
            [
                resident(3, 20 * GIB, SECOND, allocation=BIG.id),
                resident(4, GIB, SECOND),
                resident(5, GIB, SECOND, of=member(OTHER)),
            ],
            [("stranger", 5, True, GIB)],
            id="on a whole GPU only a process of another pod is a stranger",
        ),
    ],
)  # fmt: skip
def test_suspects(present: list[Resident], expected: list[tuple[object, ...]]) -> None:
    assert found(*present) == expected


@pytest.mark.parametrize(
    ("promises", "one"),
    [
        pytest.param((), STRANGER, id="a GPU that is promised to nobody has no strangers"),
        pytest.param(
            (WAITING,),
            resident(3, GIB, allocation=WAITING.id),
            id="before its pod is settled nobody is accused",
        ),
    ],
)
def test_nobody_is_suspected(promises: Sequence[Grant], one: Resident) -> None:
    assert found(one, promises=promises) == []


WENT_ROUND = (
    "that it did not ask the shim for: it found a driver library without the shim, "
    "and no limit holds for it"
)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (booked(1, 2 * GIB),
         "process 1 of team/pod (main) holds 1 GiB of GPU0 beyond its container's limit"),
        (resident(3, GIB, allocation=ONE.id, of=member(OWNER)),
         f"process 3 of team/pod (main) holds 1 GiB of GPU0 {WENT_ROUND}"),
        (resident(3, None, allocation=ONE.id, of=member(OWNER)),
         f"process 3 of team/pod (main) holds memory of GPU0 {WENT_ROUND}"),
        (resident(4, GIB),
         "process 4 of no pod that is known holds 1 GiB of GPU0, which is granted to others"),
    ],
)  # fmt: skip
def test_a_suspect_says_what_is_wrong_with_it(one: Resident, words: str) -> None:
    assert [str(found) for found in suspects(seen(one))] == [words]


def test_in_a_pod_of_several_containers_it_is_known_to_be_the_pod_s() -> None:
    (one,) = suspects(seen(resident(3, 500 * MIB, of=member(OWNER)), promises=(ONE, SIDE)))

    assert (one.kind, one.owner, one.pod) == (UnlimitedKind.UNBOOKED, None, OWNER.uid)


def test_launches_outside_of_a_container_s_turns_are_found() -> None:
    snapshot = seen(booked(1, 300 * MIB))
    views = [replace(one, overdrawn=one.owner == OWNER) for one in snapshot.containers]

    (one,) = suspects(replace(snapshot, containers=tuple(views)))

    assert (one.kind, one.process.pid, one.certain) == (UnlimitedKind.OVERDRAWN, 1, True)
    assert (one.owner, one.pod) == (OWNER, OWNER.uid)
    assert "launches on GPU0 outside of its container's turns" in str(one)


def with_unlimited() -> Snapshot:
    """Of two processes the shim of the second could not place the driver's functions."""
    used = usage(ONE, {1: MIB, 2: MIB})
    sound, marked = used.processes
    books = {ONE.id: replace(used, processes=(sound, replace(marked, unlimited=True)))}
    view = container_view(NODE, ONE, MeterTotals(books, {}, Busy()))
    assert view is not None
    return Snapshot(at=0.0, node="n", answered=True, containers=(view,))


async def test_a_process_whose_shim_cannot_hold_limits_is_told_and_not_ended() -> None:
    heard, ends = Heard(), Ends()
    auditor = Auditor(AuditPolicy.END, heard, looks=1, end=ends, commands=lambda _: "train")

    await auditor.audit(with_unlimited())

    assert heard.of_pods == [(OWNER.uid, "GpuUnlimited")]
    (message,) = heard.messages
    assert message == (
        "process 2 (train) of team/pod (main) uses GPU0 without limits:"
        " the shim does not know its driver's functions"
    )
    assert auditor.tally.unlimited == {("team", "pod", "main", "entry"): 1}
    assert ends.asked == []


async def test_processes_without_limits_are_counted_by_their_container() -> None:
    mine = resident(3, GIB, allocation=ONE.id, of=member(OWNER))
    either = resident(4, GIB, of=member(OWNER))
    auditor = Auditor(looks=1, names={OWNER.uid: "team/pod"}.get)

    await auditor.audit(seen(mine, either, promises=(ONE, SIDE)))

    assert auditor.tally.unlimited == {
        ("team", "pod", "main", "session"): 1,
        ("team", "pod", "", "session"): 1,
    }


def test_a_slot_in_another_pod_s_books_is_a_mismatch() -> None:
    right = replace(booked(1, MIB), of=member(OWNER))
    wrong = replace(booked(2, MIB), of=member(OTHER))
    unknown = booked(3, MIB)

    assert mismatches(seen(right, wrong, unknown)) == {(ONE.id, wrong.process)}


def test_the_books_say_whose_a_process_is_and_then_its_cgroup() -> None:
    two = share(OTHER, "a2", cores=10, first=40)
    in_books = slots_by_process([usage(ONE, {1: 5 * MIB})])
    of = {2: member(OTHER), 3: member("77777777-9a44-4e0b-8f57-0c2f9b1a6e21")}
    held = {bare(FIRST.uuid): {pid: Bytes(10 * MIB) for pid in (1, 2, 3, 4)}}
    living = {pid: Process(pid, 10 * pid) for pid in (1, 2, 3)}

    found = residents(
        NODE.gpus, held, in_books, (ONE, two), find=living.get, of=lambda one: of.get(one.pid)
    )

    assert [(r.process.pid, r.allocation, r.booked) for r in found] == [
        (1, ONE.id, 5 * MIB),
        (2, two.id, None),
        (3, None, None),
    ]


CLAIM = ClaimSource("uid-claim", "team", "claim", (ClaimedDevice("gpu-1", "gpu"),))


def test_a_slot_of_another_pod_of_a_claim_is_no_mismatch() -> None:
    claimed = replace(ONE, source=CLAIM)
    second = replace(booked(2, MIB), of=member(OTHER))

    assert mismatches(seen(second, promises=(claimed,))) == frozenset()


@pytest.mark.parametrize(
    ("cores", "users", "found"),
    [(100, (), True), (30, (), False), (30, (OWNER, OTHER), True), (30, (OTHER,), True)],
)
def test_a_process_of_any_pod_of_a_claim_is_at_home_on_its_gpu(
    cores: int, users: tuple[Claimant, ...], *, found: bool
) -> None:
    """As far as the watch has told of them; a GPU that the claim has whole needs no telling."""
    claimed = replace(ONE, source=CLAIM, shares={FIRST.uuid: Share(cores, 8)})
    held = {bare(FIRST.uuid): {2: Bytes(10 * MIB)}}

    (one,) = residents(
        NODE.gpus,
        held,
        slots_by_process([]),
        (claimed,),
        users=lambda _: users,
        find=lambda pid: Process(pid, 20),
        of=lambda _: member(OTHER),
    )

    assert one.allocation == (claimed.id if found else None)


def test_a_pid_that_is_another_process_by_now_has_no_part_in_the_books() -> None:
    in_books = slots_by_process([usage(ONE, {1: 5 * MIB})])
    held = {bare(FIRST.uuid): {1: Bytes(10 * MIB)}}

    (found,) = residents(
        NODE.gpus, held, in_books, (ONE,), find=lambda pid: Process(pid, 999), of=lambda _: None
    )

    assert found.booked is None


class Heard:
    """Events as the cluster would hear them."""

    def __init__(self) -> None:
        self.of_node: list[str] = []
        self.of_pods: list[tuple[PodUID, str]] = []
        self.messages: list[str] = []

    def event(self, event: NodeEvent) -> None:
        self.of_node.append(event.reason)

    def pod_event(self, pod: PodUID, event: NodeEvent) -> None:
        self.of_pods.append((pod, event.reason))
        self.messages.append(event.message)


def shared_by_two(one: Resident, *, unlimited: bool = False) -> Snapshot:
    """A process of a claim that the pods of OWNER and OTHER share."""
    snapshot = seen(one, promises=(replace(ONE, source=CLAIM),))
    (view,) = snapshot.containers
    alone = (one.process,) if unlimited else ()
    shown = replace(view, users=(OWNER, OTHER), unlimited=alone)
    return replace(snapshot, containers=(shown,))


@pytest.mark.parametrize("unlimited", [False, True])
@pytest.mark.parametrize(
    ("of", "told", "who"),
    [
        (member(OWNER), [OWNER], "team/pod (main)"),
        (member(OTHER), [OTHER], "pod team/other"),
        (None, [OWNER, OTHER], "team/pod (main) or whoever shares its claim"),
    ],
)
async def test_of_pods_that_share_a_claim_the_one_whose_process_it_is_is_told(
    of: Membership | None, told: list[Claimant], who: str, *, unlimited: bool
) -> None:
    heard = Heard()
    names = {OTHER.uid: "team/other"}
    size = Bytes(2 * GIB)
    one = resident(3, size, allocation=ONE.id, of=of, booked=size if unlimited else None)
    auditor = Auditor(reports=heard, looks=1, names=names.get)

    await auditor.audit(shared_by_two(one, unlimited=unlimited))

    kind = "GpuUnlimited" if unlimited else "GpuMemoryBehindTheShim"
    assert {(pod.uid, kind) for pod in told} <= set(heard.of_pods)
    assert {pod for pod, _ in heard.of_pods} == {pod.uid for pod in told}
    assert all(f" of {who} " in message for message in heard.messages)


class Ends:
    def __init__(self) -> None:
        self.asked: list[int] = []

    async def __call__(self, process: Process) -> bool:
        self.asked.append(process.pid)
        return True


BREACH = seen(booked(1, 2 * GIB))


async def test_a_breach_is_said_once_when_it_was_found_at_several_looks() -> None:
    heard, ends = Heard(), Ends()
    auditor = Auditor(reports=heard, end=ends)

    for _ in range(LOOKS_BEFORE_VERDICT - 1):
        await auditor.audit(BREACH)
    assert heard.of_pods == []
    for _ in range(5):
        await auditor.audit(BREACH)

    assert heard.of_pods == [(OWNER.uid, "GpuMemoryBehindTheShim")]
    assert (
        auditor.tally.found[UnlimitedKind.OVER_LIMIT]
        == auditor.tally.now[UnlimitedKind.OVER_LIMIT]
        == 1
    )
    assert ends.asked == []  # it is only reported


async def test_a_breach_that_is_over_counts_no_more_and_is_said_again_when_it_is_back() -> None:
    heard = Heard()
    auditor = Auditor(reports=heard, looks=1)
    for look in (BREACH, seen(), BREACH):
        await auditor.audit(look)
        last = dict(auditor.tally.now)

    assert last[UnlimitedKind.OVER_LIMIT] == 1
    assert auditor.tally.found[UnlimitedKind.OVER_LIMIT] == len(heard.of_pods) == 2


@pytest.mark.parametrize(
    ("between", "told"),
    [
        pytest.param(seen(), 0, id="looks are counted in a row"),
        pytest.param(
            replace(BREACH, answered=False, residents=()), 1, id="a silent driver ends no row"
        ),
    ],
)
async def test_a_verdict_takes_looks_in_a_row(between: Snapshot, told: int) -> None:
    heard = Heard()
    auditor = Auditor(reports=heard, looks=2)
    for look in (BREACH, between, BREACH):
        await auditor.audit(look)

    assert len(heard.of_pods) == told


async def test_a_stranger_of_the_host_is_the_node_s_event() -> None:
    heard = Heard()
    await Auditor(reports=heard, looks=1).audit(seen(resident(3, GIB)))

    assert (heard.of_node, heard.of_pods) == (["GpuStranger"], [])


@pytest.mark.parametrize(
    ("names", "called"), [({OTHER.uid: "team/other"}, "team/other"), ({}, OTHER.uid)]
)
async def test_a_pod_of_which_no_container_is_known_has_its_name_where_somebody_knows_it(
    names: dict[PodUID, str], called: str
) -> None:
    heard = Heard()
    auditor = Auditor(reports=heard, looks=1, names=names.get)

    await auditor.audit(seen(resident(3, GIB, of=member(OTHER))))

    assert heard.of_pods == [(OTHER.uid, "GpuStranger")]
    assert heard.messages == [
        f"process 3 of pod {called} holds 1 GiB of GPU0, which is granted to others"
    ]


async def test_by_policy_those_are_ended_of_whom_the_kernel_says_who_they_are() -> None:
    ends = Ends()
    auditor = Auditor(AuditPolicy.END, looks=1, end=ends)

    await auditor.audit(
        seen(booked(1, 2 * GIB), resident(3, GIB), resident(4, GIB, of=member(OTHER)))
    )
    await until(lambda: auditor.tally.ended == 2)

    assert sorted(ends.asked) == [1, 4]


async def test_mismatches_are_counted_once_each() -> None:
    auditor = Auditor()
    wrong = seen(replace(booked(2, MIB), of=member(OTHER)))
    for _ in range(3):
        await auditor.audit(wrong)

    assert auditor.tally.mismatches == 1


STUBBORN = (
    "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
)
OBEDIENT = "import time; print(1, flush=True); time.sleep(60)"


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    command = (sys.executable, "-c", request.param)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


def _process(started: subprocess.Popen[bytes]) -> Process:
    found = find(started.pid)
    assert found is not None
    return found


@pytest.mark.parametrize("program", [OBEDIENT], indirect=True)
async def test_a_process_is_asked_to_end(program: subprocess.Popen[bytes]) -> None:
    assert await end(_process(program), grace=120)

    assert await asyncio.to_thread(program.wait) == -signal.SIGTERM


@pytest.mark.parametrize("program", [STUBBORN], indirect=True)
async def test_who_does_not_listen_is_made_to(program: subprocess.Popen[bytes]) -> None:
    assert await end(_process(program), grace=0.1)

    assert await asyncio.to_thread(program.wait) == -signal.SIGKILL


@pytest.mark.parametrize("program", [OBEDIENT], indirect=True)
async def test_another_process_of_the_same_pid_is_left_alone(
    program: subprocess.Popen[bytes],
) -> None:
    earlier = Process(program.pid, _process(program).start_time - 1)

    assert not await end(earlier, grace=0.1)
    assert program.poll() is None


async def test_a_process_that_is_gone_is_not_ended() -> None:
    assert not await end(Process(2**22 + 1, 1), grace=0.1)


async def test_without_pidfds_nobody_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    me = find(os.getpid())
    assert me is not None

    assert not await end(me, grace=0.1)
