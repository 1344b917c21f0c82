"""Any history of a node: admissions, rejections, ends, restarts, with and without a view of pods.

Agents die at every step of writing their journal, lose it, or find it damaged; disks are full; the
container runtime does not answer; GPUs fall ill. After each step: no device belongs to two settled
pods, the books of no GPU are overdrawn, every container that runs has exactly the limits of its own
spec, and together they fit on their GPUs. In the end everybody's books agree, and no directory is
left over.
"""

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from admission_node import (
    BLOCKS,
    JOURNAL,
    AdmissionRefused,
    Crash,
    CrashingFile,
    Node,
    container,
    gpus,
    pod,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from gpumanager.allocator.adoption import UNPROVED
from gpumanager.allocator.journal import Allocation
from gpumanager.allocator.journal_file import ROOM
from gpumanager.allocator.ledger import Ledger
from gpumanager.allocator.settlement import NotSettled
from gpumanager.kubelet.pods import ContainerKind, ContainerView, PodUID, PodView
from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.place import place
from gpumanager.placement.values import Books, Grant, Request
from gpumanager.units import MEMORY_BLOCK

STEPS = [
    *[(step, ROOM) for step in ("_append", "_force")],
    *[(step, 0) for step in ("_write", "_replace", "_force_directory")],
]
"""Of writing a line, and of writing a file: with room for lines and without."""

kinds = st.sampled_from(
    [ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP, ContainerKind.APP]
)
shares = st.tuples(st.integers(1, 99), st.integers(1, BLOCKS), kinds)
wholes = st.tuples(st.sampled_from([100, 200]), st.integers(0, 4), kinds)
shapes = st.lists(st.one_of(shares, shares, wholes), min_size=1, max_size=3)


def spec(shape: list[tuple[int, int, ContainerKind]]) -> list[ContainerView]:
    ordered = sorted(shape, key=lambda one: one[2] is ContainerKind.APP)
    return [container(c, b, f"c{n}", kind) for n, (c, b, kind) in enumerate(ordered)]


class Histories(RuleBasedStateMachine):
    """One node and everything that can happen to it."""

    waiting = Bundle("waiting")
    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="gm")
        self.runner = asyncio.Runner()
        self.number = 0
        self.running: dict[tuple[PodUID, str], ContainerView] = {}
        self.was_blind = False

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    @initialize(count=st.integers(1, 3), seed=st.integers(0, 99))
    def begin(self, count: int, seed: int) -> None:
        self.node = Node(Path(self.directory.name), gpus(count), seed)

    def new_pod(self, shape: list[tuple[int, int, ContainerKind]]) -> PodView:
        self.number += 1
        return pod(f"p{self.number}", *spec(shape))

    @rule(target=waiting, shape=shapes)
    def a_pod_is_admitted(self, shape: list[tuple[int, int, ContainerKind]]) -> Any:
        admitted = self.new_pod(shape)
        try:
            self.run(self.node.admit(admitted))
        except AdmissionRefused:
            return multiple()
        return admitted

    @rule(shape=shapes, parts=st.sampled_from([(VCORE,), (VMEMORY,), (VCORE, VMEMORY)]))
    def a_pod_is_rejected_and_still_listed_as_pending(
        self, shape: list[tuple[int, int, ContainerKind]], parts: tuple[str, ...]
    ) -> None:
        rejected = self.new_pod(shape)
        try:
            self.run(self.node.admit(rejected, order=parts))
        except AdmissionRefused:
            return
        self.node.held = {k: ids for k, ids in self.node.held.items() if k[0] != rejected.uid}

    @rule(target=runs, started=consumes(waiting))
    def a_pod_starts(self, started: PodView) -> PodView:
        for one in started.containers:
            if not self.start(started, one.name):
                self.a_pod_ends(ended=started, deleted=True)
                return started
            self.running[started.uid, one.name] = one
        for one in started.containers:
            if one.kind is ContainerKind.INIT:
                del self.running[started.uid, one.name]
            else:
                self.node.runtime.containers.append(self.node.live_container(started, one.name))
        return started

    def start(self, started: PodView, name: str) -> bool:
        """True if it starts. With a list of pods every admitted container does.

        Without one, halves may have been paired wrongly, and a container has to wait for room.
        """
        try:
            self.run(self.node.start(started, name))
        except NotSettled as error:
            assert self.was_blind, error  # noqa: PT017
            assert "do not fit on its GPU now" in str(error)  # noqa: PT017
            return False
        return True

    @rule(restarted=runs)
    def a_container_restarts(self, restarted: PodView) -> None:
        if (restarted.uid, restarted.containers[-1].name) in self.running:
            self.start(restarted, restarted.containers[-1].name)

    @rule(ended=consumes(runs), deleted=st.booleans())
    def a_pod_ends(self, ended: PodView, deleted: bool) -> None:  # noqa: FBT001
        self.running = {k: one for k, one in self.running.items() if k[0] != ended.uid}
        live = self.node.runtime.containers
        live[:] = [one for one in live if one.container.pod_uid != ended.uid]
        if deleted:
            self.node.delete(ended.uid)
        else:
            self.node.fail(ended.uid, "Succeeded")

    @rule()
    def the_agent_restarts(self) -> None:
        self.run(self.node.restart_agent())

    @rule()
    def the_kubelet_restarts(self) -> None:
        self.run(self.node.allocator.kubelet_started())

    @rule()
    def the_agent_reconciles(self) -> None:
        self.node.clock.now += 5
        self.run(self.node.allocator.reconcile())

    @rule()
    def a_pod_without_gpus_appears(self) -> None:
        idle = self.new_pod([(0, 0, ContainerKind.APP)])
        self.node.listing.listed[idle.uid] = idle

    @rule(shape=shapes, step=st.sampled_from(STEPS), after=st.booleans(), skip=st.integers(0, 3))
    def the_agent_dies_while_a_pod_is_admitted(
        self,
        shape: list[tuple[int, int, ContainerKind]],
        step: tuple[str, int],
        after: bool,  # noqa: FBT001
        skip: int,
    ) -> None:
        name, room = step
        file = CrashingFile(self.node.directory / JOURNAL, name, after=after, skip=skip, room=room)
        self.node.virtual.open_now.clear()
        self.node.allocator = self.node.new_allocator(file)
        admitted = self.new_pod(shape)
        try:
            self.run(self.node.allocator.recover())
            self.run(self.node.allocator.kubelet_started())
            self.run(self.node.admit(admitted))
        except Crash:
            self.node.fail(admitted.uid)
        except AdmissionRefused:
            pass
        else:
            self.node.fail(admitted.uid)
        self.run(self.node.restart_agent())

    @rule(started=consumes(waiting), step=st.sampled_from(STEPS), after=st.booleans())
    def the_agent_dies_while_a_container_starts(
        self,
        started: PodView,
        step: tuple[str, int],
        after: bool,  # noqa: FBT001
    ) -> None:
        name, room = step
        self.node.allocator = self.node.new_allocator()
        self.run(self.node.restart_agent())
        file = CrashingFile(self.node.directory / JOURNAL, name, after=after, skip=1, room=room)
        self.node.virtual.open_now.clear()
        self.node.allocator = self.node.new_allocator(file)
        self.run(self.node.allocator.recover())
        with contextlib.suppress(Crash, NotSettled):
            self.run(self.node.start(started, started.containers[0].name))
        self.run(self.node.restart_agent())
        self.a_pod_ends(ended=started, deleted=True)

    @rule(how=st.sampled_from(["lost", "damaged", "cut"]))
    def the_journal_is_gone_or_damaged(self, how: str) -> None:
        path = self.node.directory / JOURNAL
        if not path.exists():
            return
        contents = path.read_bytes()
        if how == "lost":
            path.unlink()
        elif how == "damaged":
            path.write_bytes(contents[:60] + b"?" + contents[61:])
        else:
            path.write_bytes(contents.rstrip()[:-10])
        self.run(self.node.restart_agent())
        self.was_blind |= any(a.why in UNPROVED for a in self.node.allocator.journal.live())

    @rule(answers=st.booleans())
    def the_container_runtime_is_lost_or_found(self, answers: bool) -> None:  # noqa: FBT001
        self.node.runtime.answers = answers

    @rule(ill=st.sets(st.integers(0, 2)))
    def gpus_fall_ill_or_recover(self, ill: set[int]) -> None:
        gpus = (gpu.uuid for gpu in self.node.topology.gpus if gpu.index in ill)
        self.node.allocator.mark_unhealthy(gpus)

    @rule()
    def everybody_agrees_in_the_end(self) -> None:
        self.node.listing.readable = self.node.runtime.answers = True
        self.node.forget_ended()
        self.node.write_checkpoint()
        for _ in range(3):
            self.node.clock.now += 60
            self.run(self.node.allocator.reconcile())
        live = self.node.allocator.journal.live()
        held = {(uid, frozenset(ids)) for (uid, _, r), ids in self.node.held.items() if r == VCORE}
        assert {(uid, ids) for uid, ids in held} <= {
            (owner, frozenset(a.core_ids)) for a in live for owner in self.owners(a)
        }
        assert {uid for a in live if a.pod for uid in [a.pod.uid]} <= self.active()
        assert set(self.node.virtual.kept) <= {a.allocation for a in live}
        assert [d for d in self.node.allocator.disagreements if d.kind != "unbooked"] == []

    def owners(self, allocation: Allocation) -> set[PodUID]:
        """Whoever may have it: anybody, until it is settled."""
        return {allocation.pod.uid} if allocation.pod else self.active()

    def active(self) -> set[PodUID]:
        return {p.uid for p in self.node.listing.listed.values() if not p.ended}

    @rule(readable=st.booleans())
    def the_list_of_pods_is_lost_or_found(self, readable: bool) -> None:  # noqa: FBT001
        self.node.listing.readable = readable
        self.was_blind |= not readable

    @invariant()
    def no_device_belongs_to_two_settled_pods(self) -> None:
        if not hasattr(self, "node"):
            return
        active = {p.uid for p in self.node.listing.listed.values() if not p.ended}
        holders: dict[str, set[PodUID]] = {}
        for allocation in self.node.allocator.journal.live():
            if allocation.pod and allocation.pod.uid in active:
                for device_id in (*allocation.core_ids, *allocation.memory_ids):
                    holders.setdefault(device_id, set()).add(allocation.pod.uid)
        assert all(len(uids) == 1 for uids in holders.values())

    @invariant()
    def no_book_is_overdrawn(self) -> None:
        if not hasattr(self, "node"):
            return
        live = self.node.allocator.journal.live()
        books = Ledger(self.node.topology).books(a for a in live if a.why not in UNPROVED)
        for gpu in self.node.topology.gpus:
            assert books.of(gpu).free_cores >= 0
            assert books.of(gpu).free_blocks >= 0

    @invariant()
    def what_runs_has_its_own_limits_and_fits(self) -> None:
        cores: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        whole: Counter[tuple[str, PodUID]] = Counter()
        for (uid, name), one in self.running.items():
            answer = self.node.answers[uid, name]
            uuids = answer.envs["NVIDIA_VISIBLE_DEVICES"].split(",")
            assert len(uuids) == max(1, (one.cores or 0) // 100)
            if (one.cores or 0) >= 100:
                whole.update((uuid, uid) for uuid in uuids)
                continue
            (limit,) = self.node.limits(self.node.listing.listed[uid], name)
            assert (limit.gpu, limit.cores) == (uuids[0], one.cores)
            assert limit.memory == (one.blocks or 0) * MEMORY_BLOCK
            cores[limit.gpu] += limit.cores
            memory[limit.gpu] += limit.memory
        assert all(count <= 100 for count in cores.values())
        assert all(count <= BLOCKS * MEMORY_BLOCK for count in memory.values())
        assert len({uuid for uuid, _ in whole}) == len(whole)

    def teardown(self) -> None:
        self.runner.close()
        self.directory.cleanup()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    derandomize=True,
    max_examples=80,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class CleanHistories(RuleBasedStateMachine):
    """Only pods that come, run and go: each is admitted exactly when it fits."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="gm")
        self.runner = asyncio.Runner()
        self.number = 0
        self.granted: dict[PodUID, Grant] = {}

    @initialize(count=st.integers(1, 4), seed=st.integers(0, 99))
    def begin(self, count: int, seed: int) -> None:
        self.node = Node(Path(self.directory.name), gpus(count), seed)

    def books(self) -> Books:
        books = Books.empty(self.node.topology)
        for grant in self.granted.values():
            books = books.take(grant)
        return books

    @rule(cores=st.integers(1, 99) | st.sampled_from([100, 200, 300]), blocks=st.integers(1, 16))
    def a_pod_comes(self, cores: int, blocks: int) -> None:
        self.number += 1
        asked = pod(f"p{self.number}", container(cores, blocks))
        expected = place(self.node.topology, self.books(), Request(cores, blocks))
        try:
            self.runner.run(self.node.run(asked))
        except AdmissionRefused:
            assert not isinstance(expected, Grant)
            return
        assert isinstance(expected, Grant)
        self.granted[asked.uid] = expected
        uuids = self.node.answers[asked.uid, "main"].envs["NVIDIA_VISIBLE_DEVICES"]
        assert uuids == ",".join(gpu.uuid for gpu in expected.gpus)

    @rule(data=st.data(), deleted=st.booleans())
    def a_pod_goes(self, data: st.DataObject, deleted: bool) -> None:  # noqa: FBT001
        if not self.granted:
            return
        uid = data.draw(st.sampled_from(sorted(self.granted)))
        del self.granted[uid]
        if deleted:
            self.node.delete(uid)
        else:
            self.node.fail(uid, "Succeeded")
        self.node.clock.now += 5
        self.runner.run(self.node.allocator.reconcile())

    def teardown(self) -> None:
        self.runner.close()
        self.directory.cleanup()


TestCleanHistories = CleanHistories.TestCase
TestCleanHistories.settings = settings(
    derandomize=True,
    max_examples=40,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
