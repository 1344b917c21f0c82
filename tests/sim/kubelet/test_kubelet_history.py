"""Histories of the simulated kubelet's device manager: no device is ever held twice."""

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE
from gpumanager.sim.kubelet.devices import (
    NONE,
    DeviceBooks,
    Holding,
    IDs,
    Unavailable,
    begin,
    finish,
    leave,
)
from gpumanager.sim.kubelet.pods import SimulatedPodList, room_for
from gpumanager.sim.manifest.pods import ContainerManifest, Pod

ALL: IDs = frozenset(f"d{number}" for number in range(10))

containers = st.lists(
    st.tuples(st.sampled_from([ContainerKind.INIT, ContainerKind.SIDECAR]), st.integers(0, 6)),
    max_size=3,
).flatmap(
    lambda first: st.lists(st.integers(0, 6), min_size=1, max_size=3).map(
        lambda apps: [*first, *((ContainerKind.APP, size) for size in apps)]
    )
)


class Kubelet(RuleBasedStateMachine):
    """Admission as the kubelet does it, with a plugin that prefers anything."""

    def __init__(self) -> None:
        super().__init__()
        self.books = DeviceBooks().advertise(VCORE, ALL, ALL)
        self.pods = SimulatedPodList()
        self.random = Random(1)

    @rule(wanted=containers, preferred=st.lists(st.sampled_from(sorted(ALL))))
    def admit(self, wanted: list[tuple[ContainerKind, int]], preferred: list[str]) -> None:
        rows = [
            ContainerManifest(f"c{number}", kind, ("x",), asks={VCORE: size} if size else {})
            for number, (kind, size) in enumerate(wanted)
        ]
        pod = Pod("default", "pod", tuple(rows))
        if room_for(pod, self.pods.active, self.books) is None:
            self.pods = self.pods.add(pod)
            self.books = self.books.collect(self.pods.active_uids)
            if not self._allocate(pod, preferred):
                self.pods = self.pods.without(pod.uid)
            self.books = self.books.finish_admission()

    def _allocate(self, pod: Pod, preferred: list[str]) -> bool:
        reusable: dict[str, IDs] = {}
        for container in pod.containers:
            if container.cores:
                left = reusable.get(VCORE, NONE)
                choice = begin(self.books, VCORE, container.cores, left, self.random)
                if isinstance(choice, Unavailable):
                    return False
                ids = finish(choice, preferred, self.random)
                self.books = self.books.reserve(VCORE, ids)
                self.books = self.books.hold(Holding(pod.uid, container.name, VCORE, ids))
            held = self.books.of_container(pod.uid, container.name)
            reusable = dict(leave(reusable, container, held))
        return True

    @rule(which=st.integers(0, 5))
    def end(self, which: int) -> None:
        if self.pods.active:
            gone = self.pods.active[which % len(self.pods.active)]
            self.pods = self.pods.without(gone.uid)

    @rule(healthy=st.sets(st.sampled_from(sorted(ALL))))
    def change(self, healthy: set[str]) -> None:
        self.books = self.books.advertise(VCORE, ALL, frozenset(healthy))

    @invariant()
    def no_device_has_two_living_pods(self) -> None:
        holders: dict[str, str] = {}
        for row in self.books.holdings:
            if row.pod_uid in self.pods.active_uids:
                for device in row.ids:
                    assert holders.setdefault(device, row.pod_uid) == row.pod_uid

    @invariant()
    def every_container_of_a_living_pod_holds_what_it_asked_for(self) -> None:
        for pod in self.pods.active:
            for container in pod.containers:
                held = self.books.of_container(pod.uid, container.name)
                assert sum(len(row.ids) for row in held) == container.cores

    @invariant()
    def containers_that_run_together_share_no_device(self) -> None:
        for pod in self.pods.active:
            together = [
                row
                for one in pod.containers
                if one.kind is not ContainerKind.INIT
                for row in self.books.of_container(pod.uid, one.name)
            ]
            assert sum(len(row.ids) for row in together) == len(
                frozenset[str]().union(*(row.ids for row in together))
            )


TestKubelet = Kubelet.TestCase
TestKubelet.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
