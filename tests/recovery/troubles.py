"""What may go wrong with a node, at any moment of a history, alone and together.

The agent dies at each step of writing its journal and at its directories, in all that it does; the
journal, or the kubelet's checkpoint, is lost or damaged; the kubelet starts again, with its books
or without; the list of pods and the container runtime do not answer; the clock is set
back; GPUs fall ill, are gone when the agent starts, and come back.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from gpumanager.deviceplugin.identity.adoption import is_evidence
from gpumanager.grants.refusals import NotResolved
from gpumanager.kube.pod import ContainerKind
from tests.deviceplugin.admission.admission_node import JOURNAL, AdmissionRefused, Crash
from tests.recovery.histories import PodHistories, places, shapes
from tests.recovery.history_node import STEPS, Death, Shape


def die(at: tuple[str, int], skip: int, after: bool) -> Death:  # noqa: FBT001
    step, room = at
    return Death(step, room, skip, after)


deaths = st.builds(die, st.sampled_from(STEPS), st.integers(0, 4), st.booleans())


class TroubledHistories(PodHistories):
    """Everything that can happen to one node."""

    def dying(self, death: Death, work: Callable[[], Coroutine[Any, Any, Any]], what: str) -> bool:
        """Whether an agent that is to die did so in `work`; another has taken over."""
        begun = False
        try:
            self.run(self.node.restart_dying(death))
            begun = True
            self.run(work())
        except Crash:
            self.note(f"died at {death.step}")
            self.note(f"died while {what if begun else 'starting'}")
            return begun
        finally:
            self.restart()
        return False

    def restart(self) -> None:
        """While it is away somebody sets the clock back."""
        self.node.set_by = -86_400 * self.number
        self.run(self.node.restart_agent())
        self.was_counting |= any(is_evidence(a) for a in self.node.allocator.node.journal.live())
        self.was_blind |= self.was_counting

    @rule(shape=shapes, death=deaths)
    def the_agent_dies_while_a_pod_is_admitted(self, shape: Shape, death: Death) -> None:
        """An error of the plugin ends the pod."""
        admitted = self.next_pod(shape)
        outcome: list[bool] = []

        async def admit() -> None:
            try:
                await self.node.admit(admitted)
            except AdmissionRefused:
                return
            outcome.append(True)

        self.dying(death, admit, "admitting")
        if outcome:
            self.waiting.append(admitted)
        else:
            self.node.fail(admitted.uid)

    @rule(place=places, death=deaths)
    def the_agent_dies_while_a_container_starts(self, place: int, death: Death) -> None:
        """The kubelet tries again, and then it starts."""
        self.admit(self.next_pod([(1, 1, ContainerKind.APP)]))
        if not self.waiting:
            return
        started = self.waiting[place % len(self.waiting)]

        async def start() -> None:
            try:
                await self.node.start(started, started.containers[0].name)
            except NotResolved as error:
                assert self.may_wait(started, started.containers[0].name, str(error)), error  # noqa: PT017

        self.dying(death, start, "settling")

    @rule(death=deaths)
    def the_agent_dies_while_it_reconciles(self, death: Death) -> None:
        """There is something to do: a pod has just ended."""
        if self.runs:
            self.end(self.runs.pop(), deleted=True)

        async def reconcile() -> None:
            for _ in range(2):
                self.node.clock.now += 60
                await self.node.allocator.reconcile()

        self.dying(death, reconcile, "reconciling")

    @rule(death=deaths)
    def the_agent_dies_while_it_recovers(self, death: Death) -> None:
        async def nothing() -> None:
            await asyncio.sleep(0)

        self.dying(death, nothing, "doing nothing")

    @rule()
    def the_agent_restarts(self) -> None:
        self.restart()

    @rule(how=st.sampled_from(["lost", "damaged", "cut"]))
    def the_journal_is_gone_or_damaged(self, how: str) -> None:
        """Of whole GPUs somebody else has to know: there is no directory of them.

        Who waits for an image is known by the kubelet's books alone.
        """
        path = self.node.directory / JOURNAL
        if not path.exists() or not (self.node.books_whole or self.node.runtime.answers):
            return
        contents = path.read_bytes()
        if how == "lost":
            path.unlink()
        elif how == "damaged":
            path.write_bytes(contents[:60] + b"?" + contents[61:])
        else:
            path.write_bytes(contents.rstrip()[:-10])
        self.note(f"journal {how}")
        if self.waiting and not self.node.books_whole:
            self.was_blind = self.was_counting = True
        self.restart()

    @rule(cut=st.booleans())
    def the_kubelet_loses_its_checkpoint(self, cut: bool) -> None:  # noqa: FBT001
        self.note("checkpoint lost")
        self.node.lose_checkpoint(cut=cut)

    @rule()
    def the_kubelet_writes_its_checkpoint(self) -> None:
        self.node.write_checkpoint()

    @rule()
    def the_kubelet_restarts(self) -> None:
        """Without its books it admits again who waits: none is new, and it is promised twice.

        What runs then is known by the list of pods or by the container runtime.
        """
        if not (self.node.books_whole or self.node.listing.readable or self.node.runtime.answers):
            return
        self.forgotten |= bool(self.running) and not self.node.books_whole
        self.note("kubelet restarts" + ("" if self.node.books_whole else " without its books"))
        if self.waiting and not self.node.books_whole:
            self.was_blind = self.was_counting = True
        for refused in self.run(self.node.restart_kubelet(self.waiting)):
            self.waiting.remove(refused)

    @rule(answers=st.booleans())
    def the_container_runtime_is_lost_or_found(self, answers: bool) -> None:  # noqa: FBT001
        if self.forgotten and not self.node.listing.readable:
            return
        self.node.runtime.answers = answers

    @rule(readable=st.booleans())
    def the_list_of_pods_is_lost_or_found(self, readable: bool) -> None:  # noqa: FBT001
        if self.forgotten and not self.node.runtime.answers:
            return
        self.node.listing.readable = readable
        self.was_blind |= not readable

    @rule(ill=st.sets(st.integers(0, 2)))
    def gpus_fall_ill_or_recover(self, ill: set[int]) -> None:
        gpus = [gpu.uuid for gpu in self.node.machine.gpus if gpu.minor in ill]
        held = {uuid for one in self.node.allocator.node.journal.live() for uuid in one.gpus}
        if held & set(gpus):
            self.note("a GPU that is held falls ill")
        self.node.allocator.node.mark_unhealthy(gpus)

    @rule(there=st.sets(st.integers(0, 2), min_size=1))
    def the_agent_starts_and_gpus_are_gone(self, there: set[int]) -> None:
        """It waits for the first: there is one at least."""
        self.node.has_gpus({0} if all(at >= len(self.node.machine.gpus) for at in there) else there)
        self.restart()
        found = {gpu.uuid for gpu in self.node.topology.gpus}
        if any(not found.issuperset(one.gpus) for one in self.node.allocator.node.journal.live()):
            self.note("a GPU that is held is gone")

    @rule()
    def missing_gpus_appear(self) -> None:
        if self.node.topology is not self.node.machine:
            self.note("missing GPUs appear")
        self.run(self.node.find_gpus())
