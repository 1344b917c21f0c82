"""The simulated kubelet's device manager as values."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet.devices import (
    NONE,
    DeviceBooks,
    Holding,
    pick,
    some,
)
from gpumanager.sim.kubelet.pods import SimulatedPodStatus, pod_json, requested, room_for
from gpumanager.sim.manifest.pods import ContainerManifest, Pod

IDS = frozenset(f"d{number}" for number in range(12))


def container(name: str, kind: ContainerKind = ContainerKind.APP, **asks: int) -> ContainerManifest:
    names = {"cores": VCORE, "blocks": VMEMORY}
    return ContainerManifest(
        name, kind, ("x",), asks={names[key]: value for key, value in asks.items()}
    )


def pod(*containers: ContainerManifest, name: str = "pod") -> Pod:
    return Pod("default", name, containers)


def books() -> DeviceBooks:
    return DeviceBooks().advertise(VCORE, IDS, IDS)


def test_free_devices_are_healthy_not_held_and_not_being_given_out() -> None:
    state = DeviceBooks().advertise(VCORE, IDS, IDS - {"d0"})
    state = state.hold(Holding("u", "main", VCORE, frozenset({"d1"})))
    state = state.reserve(VCORE, frozenset({"d2"}))

    assert state.free(VCORE) == IDS - {"d0", "d1", "d2"}
    assert state.finish_admission().free(VCORE) == IDS - {"d0", "d1"}
    assert state.capacity(VCORE) == 11


def test_a_pod_that_ended_frees_its_devices_and_forgets_the_running_admission() -> None:
    state = books().hold(Holding("gone", "main", VCORE, frozenset({"d1"})))
    state = state.reserve(VCORE, frozenset({"d2"}))

    collected = state.collect(frozenset({"other"}))

    assert collected.free(VCORE) == IDS  # the real kubelet's fault: d2 is being given out
    assert state.collect(frozenset({"gone"})) is state


@given(
    taken=st.sets(st.sampled_from(sorted(IDS))),
    reusable=st.sets(st.sampled_from(sorted(IDS))),
    preferred=st.lists(st.sampled_from([*sorted(IDS), "unknown"])),
    size=st.integers(1, 12),
    seed=st.integers(0, 100),
)
def test_a_pick_has_the_size_asked_and_only_devices_that_may_be_picked(
    taken: set[str], reusable: set[str], preferred: list[str], size: int, seed: int
) -> None:
    reusable &= taken  # they are held by the pod's own init containers
    state = books().hold(Holding("u", "init", VCORE, frozenset(taken)))
    reused, free = some(frozenset(reusable), size, Random(seed)), state.free(VCORE)
    if size - len(reused) > len(free):
        return

    picked = pick(size, reused, free, preferred, Random(seed))

    assert len(picked) == size
    assert picked <= (IDS - taken) | reusable
    assert reused <= picked
    assert len(reused) == min(size, len(reusable))


@given(st.lists(st.sampled_from(sorted(IDS)), unique=True, min_size=3), st.integers(1, 3))
def test_a_preference_of_free_devices_is_followed_in_its_order(
    preferred: list[str], size: int
) -> None:
    assert pick(size, NONE, IDS, preferred, Random(1)) == frozenset(preferred[:size])


@pytest.mark.parametrize(
    ("containers", "amount"),
    [
        ([container("a", cores=3), container("b", cores=4)], 7),
        ([container("i", ContainerKind.INIT, cores=9), container("a", cores=3)], 9),
        ([container("s", ContainerKind.SIDECAR, cores=2), container("a", cores=3)], 5),
        (
            [
                container("s", ContainerKind.SIDECAR, cores=2),
                container("i", ContainerKind.INIT, cores=9),
                container("a", cores=3),
            ],
            11,
        ),
    ],
)
def test_a_pod_needs_what_its_busiest_moment_needs(
    containers: list[ContainerManifest], amount: int
) -> None:
    assert requested(containers, VCORE) == amount


def test_a_node_without_room_says_so_in_the_kubelets_words() -> None:
    rejection = room_for(pod(container("a", cores=5)), [pod(container("b", cores=8))], books())

    assert rejection is not None
    assert rejection.reason == "OutOftencent.com/vcuda-core"
    assert rejection.message == (
        "Node didn't have enough resource: tencent.com/vcuda-core, "
        "requested: 5, used: 8, capacity: 12"
    )
    assert room_for(pod(container("a", cores=4)), [pod(container("b", cores=8))], books()) is None


def test_a_pod_has_the_shape_of_the_api() -> None:
    one = pod(
        container("i", ContainerKind.INIT), container("s", ContainerKind.SIDECAR), container("a")
    )

    item = pod_json(SimulatedPodStatus(one))

    assert item["metadata"]["uid"] == one.uid
    assert [row["name"] for row in item["spec"]["initContainers"]] == ["i", "s"]
    assert item["spec"]["initContainers"][1]["restartPolicy"] == "Always"
    assert item["status"]["phase"] == "Pending"
