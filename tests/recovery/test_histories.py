"""Any history of a node: admissions, rejections, ends, and all that may go wrong meanwhile.

After each step: no device belongs to two settled pods, the books of no GPU are overdrawn, every
container that runs has exactly the limits of its own spec, and together they fit on their GPUs. In
the end everybody's books agree, nothing is held for nobody, and no directory is left over.
"""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from gpumanager.ids import PodUID
from gpumanager.placement.place import place
from gpumanager.placement.values import FreeGpus, GpuChoice, Request
from tests.deviceplugin.admission.admission_node import AdmissionRefused, Node, container, gpus, pod
from tests.histories.history_loop import HistoryLoop
from tests.recovery.history_node import STEPS
from tests.recovery.troubles import TroubledHistories

SEARCH = settings(
    derandomize=True,
    max_examples=250,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


EXPECTED = {
    "admitted",
    "refused",
    "started",
    "rejected after its Allocate",
    "journal lost",
    "journal damaged",
    "journal cut",
    "checkpoint lost",
    "kubelet restarts",
    "kubelet restarts without its books",
    "a GPU that is held falls ill",
    "a GPU that is held is gone",
    "missing GPUs appear",
    *(f"died at {step}" for step, _ in STEPS),
    *(f"died while {work}" for work in ("starting", "admitting", "settling", "reconciling")),
}
"""What the search has to have met; it is the same search each time."""


def test_whatever_happens_promises_hold_and_in_the_end_everybody_agrees() -> None:
    TroubledHistories.happened.clear()

    run_state_machine_as_test(TroubledHistories, settings=SEARCH)

    assert EXPECTED - TroubledHistories.happened.keys() == set()


class CleanHistories(RuleBasedStateMachine):
    """Only pods that come, run and go: each is admitted exactly when it fits."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="gm")
        self.runner = asyncio.Runner(loop_factory=HistoryLoop)
        self.number = 0
        self.granted: dict[PodUID, GpuChoice] = {}

    @initialize(count=st.integers(1, 4), seed=st.integers(0, 99))
    def begin(self, count: int, seed: int) -> None:
        self.node = Node(Path(self.directory.name), gpus(count), seed)

    def books(self) -> FreeGpus:
        books = FreeGpus.of_idle(self.node.topology)
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
            assert not isinstance(expected, GpuChoice)
            return
        assert isinstance(expected, GpuChoice)
        self.granted[asked.uid] = expected
        uuids = self.node.answers[asked.uid, "main"].envs["VCUDA_GPUS"]
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
