"""Histories of a node, as a state machine: pods come, run and go, and nothing else happens.

What has to hold after each step, and what in the end, when everybody answers again, is here too.
What may go wrong is in `troubles`.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Grant
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.refusals import NotResolved
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kube.pod import ContainerKind, ContainerView, PodView
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import MEMORY_BLOCK
from tests.deviceplugin.admission.admission_node import BLOCKS, AdmissionRefused, gpus
from tests.histories.history_loop import HistoryLoop
from tests.recovery.history_node import HistoryNode, Shape, new_pod

kinds = st.sampled_from(
    [ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP, ContainerKind.APP]
)
shares = st.tuples(st.integers(1, 60), st.integers(1, BLOCKS // 2), kinds)
wholes = st.tuples(st.sampled_from([100, 200]), st.integers(0, 4), kinds)
shapes = st.lists(st.one_of(shares, shares, wholes), min_size=1, max_size=3)
places = st.integers(0, 5)

IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A journal is forced to the disk thousands of times."""

PASSES = 8
"""Reconciliations until everybody was asked everything."""


class PodHistories(RuleBasedStateMachine):
    """One node and its pods. waiting: admitted, not started. runs: started.

    happened: how often what, over all histories.
    """

    happened: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="gm", dir=IN_MEMORY)
        self.runner = asyncio.Runner(loop_factory=HistoryLoop)
        self.number = 0
        self.waiting: list[PodView] = []
        self.runs: list[PodView] = []
        self.rejected: list[PodUID] = []
        self.running: dict[tuple[PodUID, str], ContainerView] = {}
        self.was_blind = False
        """Whether pods were ever admitted, or promises taken up, without all there is to know."""
        self.was_counting = False
        """Whether of some promise only the amount was ever known."""
        self.forgotten = False
        """Whether the kubelet does not know of all that runs."""

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    def note(self, what: str) -> None:
        self.happened[what] += 1

    @initialize(count=st.integers(1, 3), seed=st.integers(0, 99))
    def begin(self, count: int, seed: int) -> None:
        self.node = HistoryNode(Path(self.directory.name), gpus(count), seed)

    # Pods.

    def next_pod(self, shape: Shape) -> PodView:
        self.number += 1
        return new_pod(self.number, shape)

    @rule(several=st.lists(shapes, min_size=1, max_size=4), start=st.booleans())
    def pods_are_admitted(self, several: list[Shape], start: bool) -> None:  # noqa: FBT001
        for shape in several:
            self.admit(self.next_pod(shape))
        if start and self.waiting:
            self.a_pod_starts(place=-1)

    def admit(self, admitted: PodView) -> None:
        try:
            self.run(self.node.admit(admitted))
        except AdmissionRefused:
            self.note("refused")
            return
        self.note("admitted")
        self.waiting.append(admitted)

    @rule(shape=shapes, parts=st.sampled_from([(VCORE,), (VMEMORY,), (VCORE, VMEMORY)]))
    def a_pod_is_rejected_and_still_listed_as_pending(
        self, shape: Shape, parts: tuple[str, ...]
    ) -> None:
        rejected = self.next_pod(shape)
        try:
            self.run(self.node.admit(rejected, order=parts))
        except AdmissionRefused:
            return
        self.note("rejected after its Allocate")
        self.rejected.append(rejected.uid)
        self.node.held = {k: ids for k, ids in self.node.held.items() if k[0] != rejected.uid}

    @precondition(lambda self: self.waiting)
    @rule(place=places)
    def a_pod_starts(self, place: int) -> None:
        started = self.waiting.pop(place % len(self.waiting))
        self.runs.append(started)
        for number, one in enumerate(started.containers):
            if not self.start(started, one.name):
                self.runs.remove(started)
                self.put_off(started, begun=number > 0)
                return
            self.running[started.uid, one.name] = one
        for one in started.containers:
            if one.kind is ContainerKind.INIT:
                del self.running[started.uid, one.name]
            else:
                self.node.runtime.containers.append(self.node.live_container(started, one.name))
        self.note("started")

    def put_off(self, pod: PodView, *, begun: bool) -> None:
        """The kubelet tries again; one of which a part runs is given up, to keep it simple."""
        if begun or self.was_blind:
            self.end(pod, deleted=True)
        else:
            self.waiting.append(pod)

    def start(self, started: PodView, name: str) -> bool:
        """True if it starts; each container that was admitted does, if nobody was ever blind.

        Otherwise halves may have been paired wrongly, and a container has to wait for room.
        """
        try:
            self.run(self.node.start(started, name))
        except NotResolved as error:
            assert self.may_wait(started, name, str(error)), error  # noqa: PT017
            return False
        return True

    def may_wait(self, started: PodView, name: str, why: str) -> bool:
        """Whether a container has a reason not to start now."""
        if not self.node.books_whole and "the kubelet's checkpoint does not say yet" in why:
            self.note("waits for the kubelet's books")
            return True
        if "its devices are in use" in why:
            self.note("waits for who runs")
            return self.forgotten
        if "do not fit on its GPU now" not in why:
            return False
        found = {gpu.uuid for gpu in self.node.allocator.node.topology.gpus}
        self.note("waits for room" if self.gpus_of(started, name) <= found else "waits for its GPU")
        return self.was_blind or not self.gpus_of(started, name) <= found

    def gpus_of(self, pod: PodView, name: str) -> set[GpuUUID]:
        visible = self.node.answers[pod.uid, name].envs["VCUDA_GPUS"]
        return {GpuUUID(uuid) for uuid in visible.split(",")}

    @precondition(lambda self: self.runs)
    @rule(place=places)
    def a_container_restarts(self, place: int) -> None:
        one = self.runs[place % len(self.runs)]
        name = one.containers[-1].name
        if (one.uid, name) in self.running and (one.uid, name, VCORE) in self.node.held:
            self.start(one, name)

    @precondition(lambda self: self.runs)
    @rule(place=places, deleted=st.booleans())
    def a_pod_ends(self, place: int, deleted: bool) -> None:  # noqa: FBT001
        self.end(self.runs.pop(place % len(self.runs)), deleted=deleted)

    def end(self, pod: PodView, *, deleted: bool) -> None:
        self.running = {k: one for k, one in self.running.items() if k[0] != pod.uid}
        live = self.node.runtime.containers
        live[:] = [one for one in live if one.container.pod_uid != pod.uid]
        if deleted:
            self.node.delete(pod.uid)
        else:
            self.node.fail(pod.uid, "Succeeded")

    @rule()
    def the_agent_reconciles(self) -> None:
        self.node.clock.now += 5
        self.run(self.node.allocator.reconcile())

    @rule()
    def a_pod_without_gpus_appears(self) -> None:
        idle = self.next_pod([(0, 0, ContainerKind.APP)])
        self.node.listing.listed[idle.uid] = idle

    # What holds at every instant.

    def settled_holders(self) -> Iterator[tuple[str, PodUID]]:
        """Device IDs and the living pods for which they are settled."""
        for one in self.node.allocator.node.journal.live():
            if one.pod and one.pod.uid in self.active():
                for device_id in one.ids.all:
                    yield device_id, one.pod.uid

    def active(self) -> set[PodUID]:
        return {p.uid for p in self.node.listing.listed.values() if not p.ended}

    @precondition(lambda self: hasattr(self, "node"))
    @invariant()
    def no_device_belongs_to_two_settled_pods(self) -> None:
        holders: dict[str, PodUID] = {}
        for device_id, uid in self.settled_holders():
            assert holders.setdefault(device_id, uid) == uid

    @precondition(lambda self: hasattr(self, "node"))
    @invariant()
    def no_book_is_overdrawn(self) -> None:
        """But by the dead that the kubelet's books name, and after amounts alone were known.

        These give way to whom the kubelet's books prove; who does not fit then waits at its start.
        """
        if self.was_counting:
            return
        live = self.node.allocator.node.journal.live()
        dead = {a.owner for a in live if a.owner} - self.active() | {*self.rejected}
        sure = (a for a in live if a.owner not in dead)
        books = Ledger(self.node.machine).books(sure)
        for gpu in self.node.machine.gpus:
            assert books.of(gpu).cores >= 0
            assert books.of(gpu).blocks >= 0

    @invariant()
    def what_runs_has_its_own_limits_and_fits(self) -> None:
        cores: Counter[GpuUUID] = Counter()
        memory: Counter[GpuUUID] = Counter()
        whole: Counter[tuple[GpuUUID, PodUID]] = Counter()
        for (uid, name), one in self.running.items():
            pod = self.node.listing.listed[uid]
            uuids = self.gpus_of(pod, name)
            assert len(uuids) == max(1, (one.cores or 0) // 100)
            if (one.cores or 0) >= 100:
                whole.update((uuid, uid) for uuid in uuids)
                continue
            (limit,) = self.node.limits(pod, name)
            assert ({limit.gpu}, limit.cores) == (uuids, one.cores)
            assert limit.memory == (one.blocks or 0) * MEMORY_BLOCK
            cores[limit.gpu] += limit.cores
            memory[limit.gpu] += limit.memory
        assert all(count <= 100 for count in cores.values())
        assert all(count <= BLOCKS * MEMORY_BLOCK for count in memory.values())
        taken = {uuid for uuid, _ in whole}
        assert len(taken) == len(whole)
        assert not taken & set(cores)

    # What holds in the end.

    @rule()
    def everybody_agrees_in_the_end(self) -> None:
        self.all_is_well_again()
        for _ in range(PASSES):
            self.node.clock.now += 60
            self.run(self.node.allocator.reconcile())
        live = self.node.allocator.node.journal.live()
        self.what_the_kubelet_gave_is_in_the_journal(live)
        self.nothing_is_held_for_nobody(live)
        self.who_runs_is_served(live)
        assert set(self.node.virtual.kept) <= {a.id for a in live}
        assert [d for d in self.node.allocator.disagreements if d.kind != "unbooked"] == []

    def all_is_well_again(self) -> None:
        self.node.listing.readable = self.node.runtime.answers = True
        for uid in self.rejected:
            self.node.fail(uid)
        self.node.forget_ended()
        self.node.write_checkpoint()
        self.run(self.node.find_gpus())
        self.node.allocator.node.mark_unhealthy(())

    def what_the_kubelet_gave_is_in_the_journal(self, live: tuple[Grant, ...]) -> None:
        for (uid, _, resource), ids in self.node.held.items():
            if resource == VCORE:
                assert any(set(a.ids.core_ids) == ids for a in live if a.owner in {uid, None}), uid

    def nothing_is_held_for_nobody(self, live: tuple[Grant, ...]) -> None:
        held = [ids for (_, _, resource), ids in self.node.held.items() if resource == VCORE]
        for one in live:
            if one.pod is None:
                assert set(one.ids.core_ids) in held, one
            else:
                assert one.pod.uid in self.active(), one

    def who_runs_is_served(self, live: tuple[Grant, ...]) -> None:
        names = {a.id: a for a in live}
        for uid, name in self.running:
            answer = self.node.answers[uid, name]
            allocation = AllocationID(answer.envs["VCUDA_ALLOCATION"])
            assert allocation in names, (uid, name)
            held = names[allocation]
            assert set(held.gpus) == self.gpus_of(self.node.listing.listed[uid], name)

    def teardown(self) -> None:
        self.runner.close()
        self.directory.cleanup()
