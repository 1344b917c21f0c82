"""A workload is placed: kept scores change nothing, nothing is given twice, seeds decide."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumanager.cli.replay import POLICIES
from gpumanager.placement.policy import Score
from gpumanager.placement.values import PodRequest, Request
from gpumanager.placement.workload_mix import Mix
from gpumanager.sim.replay import Replay, usual
from gpumanager.sim.trace import MIXES, TracePod, Workload, idle_node
from tests.sim.made_up_traces import allocation, made_up

NAMES = sorted(POLICIES)


@pytest.mark.parametrize("name", NAMES)
def test_kept_scores_are_those_of_the_rooms_as_they_are(name: str) -> None:
    replay = Replay(made_up(nodes=8), POLICIES[name], 1)
    for pod in replay.workload.pods:
        assert replay.rate(pod.ask) == anew(replay, pod.ask)
        replay.place(pod.ask)


def anew(replay: Replay, ask: PodRequest) -> dict[int, Score | None]:
    return {
        state: replay.policy.score(room, ask, replay._mix)
        for state, room in zip(replay._state_of, replay.rooms, strict=True)
    }


class Plain(Replay):
    """Rates every node for every pod."""

    def rate(self, ask: PodRequest) -> dict[int, Score | None]:
        self._scores.clear()
        self._state_of = list(range(len(self.rooms)))
        return super().rate(ask)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mix", ["mixed", "constrained"])
def test_a_run_with_kept_scores_goes_as_one_without(name: str, mix: str) -> None:
    workload = made_up(mix, nodes=10)
    kept, plain = (kind(workload, POLICIES[name], 1) for kind in (Replay, Plain))

    assert list(kept.run()) == list(plain.run())
    assert kept.rooms == plain.rooms


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(NAMES), st.sampled_from(sorted(MIXES)))
def test_every_pod_lies_where_it_may(seed: int, name: str, mix: str) -> None:
    replay = Replay(made_up(mix, nodes=5, seed=seed), POLICIES[name], seed)
    for pod in replay.workload.pods:
        before = list(replay.rooms)
        placed = replay.place(pod.ask)
        changed = [(old, new) for old, new in zip(before, replay.rooms, strict=True) if old != new]
        assert len(changed) == (placed is not None and pod.ask != PodRequest())
        for old, new in changed:
            assert not (pod.ask.models and pod.ask.requests) or old.model in pod.ask.models
            assert old.cpu_milli - new.cpu_milli == pod.ask.cpu_milli
            assert old.memory_mib - new.memory_mib == pod.ask.memory_mib
            assert sum(gpu.cores for gpu in old.gpus) - pod.ask.cores == sum(
                gpu.cores for gpu in new.gpus
            )


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_other_names_in_the_same_order_change_nothing(name: str) -> None:
    workload = made_up("constrained", nodes=20)
    named = tuple(
        replace(node, name=f"{place:04}")
        for place, node in enumerate(sorted(workload.nodes, key=lambda node: node.name))
    )
    first = Replay(workload, POLICIES[name], 3)
    second = Replay(Workload(named, workload.pods), POLICIES[name], 3)

    assert list(first.run()) == list(second.run())


@pytest.mark.parametrize("mix", sorted(MIXES))
def test_what_was_given_away_is_what_nodes_lack(mix: str) -> None:
    workload = made_up(mix, nodes=12)
    replay = Replay(workload, POLICIES["least-waste"], 1)
    asked = {"cores": 0, "cpu": 0, "memory": 0}
    for pod, step in zip(workload.pods, replay.run(), strict=True):
        if step.placed:
            asked["cores"] += pod.ask.cores
            asked["cpu"] += pod.ask.cpu_milli
            asked["memory"] += pod.ask.memory_mib

    rooms = replay.rooms
    lacking = {
        "cores": sum(100 - gpu.cores for room in rooms for gpu in room.gpus),
        "cpu": sum(room.total_cpu_milli - room.cpu_milli for room in rooms),
        "memory": sum(room.total_memory_mib - room.memory_mib for room in rooms),
    }
    assert lacking == asked
    assert step.allocated == pytest.approx(100_000 * asked["cores"] / 100 / workload.capacity_milli)


def test_a_room_refuses_what_it_has_not() -> None:
    node = idle_node("n", "T4", 1, cpu_milli=4000, memory_mib=4096)
    ask = PodRequest((Request(60),), 1000, 1024)
    replay = Replay(Workload((node,), ()), POLICIES["binpack"], 1)

    once = replay.occupy(node, ask, ((0,),))

    with pytest.raises(ValueError, match="does not fit"):
        replay.occupy(once, ask, ((0,),))


PLACED = {
    "constrained": "d7951ce1cbcdc123",
    "cpu-heavy": "c2ce971b8a5baf8f",
    "mixed": "16791e6d11544865",
    "several": "349a394c3fcf0467",
    "shared": "e9176cea2b7888df",
}
"""Where every pod went before anybody knew of pods that leave, or of how many GPUs there are."""


@pytest.mark.parametrize("mix", sorted(MIXES))
def test_while_nobody_leaves_every_pod_goes_where_it_always_went(mix: str) -> None:
    workload = made_up(mix, nodes=60, load=1.3)
    known = replace(usual(workload), supply=())
    replay = Replay(workload, POLICIES["least-waste"], 5, mix=known)

    spots = [replay.place(pod.ask) for pod in replay.workload.pods]

    said = repr([(spot.node, spot.gpus) if spot else None for spot in spots])
    assert hashlib.sha256(said.encode()).hexdigest()[:16] == PLACED[mix]
    assert replay._mix is known


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pods_that_take_any_gpu_leave_a_scarce_model_to_those_that_name_it(seed: int) -> None:
    """One pod in ten names the model of a few nodes with two GPUs."""
    plain = made_up("mixed", nodes=60, load=1.0, seed=seed)
    pods = tuple(
        pod._replace(ask=replace(pod.ask, models=frozenset({"ash"}))) if n % 10 == 0 else pod
        for n, pod in enumerate(plain.pods)
    )
    workload = Workload(plain.nodes, pods)

    def refused(mix: Mix) -> int:
        replay = Replay(workload, POLICIES["least-waste"], seed, mix=mix)
        spots = [(pod, replay.place(pod.ask)) for pod in pods if pod.gpu_milli]
        return sum(pod.gpu_milli for pod, spot in spots if pod.ask.models and spot is None)

    known = usual(workload)
    assert refused(known) < refused(replace(known, supply=()))


def test_ties_by_name_go_to_the_first() -> None:
    nodes = [idle_node(name, "T4", 1, cpu_milli=9000, memory_mib=9000) for name in "cab"]
    pods = (TracePod("p", PodRequest((Request(100),), 1000, 1000), 1000),)
    replay = Replay(Workload(tuple(nodes), pods), POLICIES["binpack"], 0, names_decide=True)

    replay.place(pods[0].ask)

    assert [room.name for room in replay.rooms if not room.gpus[0].cores] == ["a"]


GOLDEN = {
    "binpack": 78.46,
    "claims": 79.05,
    "least-waste": 79.05,
    "spread": 75.74,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_small_trace_ends_as_it_always_did(name: str) -> None:
    assert {name: round(allocation(made_up("shared", nodes=60), name), 2)} == {name: GOLDEN[name]}
