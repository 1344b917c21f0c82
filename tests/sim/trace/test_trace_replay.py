"""A workload is placed: kept scores change nothing, nothing is given twice, seeds decide."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumanager.placement.policies import POLICIES
from gpumanager.placement.values import FreeNode, PodRequest, Request
from gpumanager.placement.workload_mix import Mix
from gpumanager.sim.trace.baselines import policies
from gpumanager.sim.trace.churn import Churn
from gpumanager.sim.trace.holding import after, given_back
from gpumanager.sim.trace.loader import idle_node
from gpumanager.sim.trace.outcome import Recorder, SteadyRecorder
from gpumanager.sim.trace.replay import Replay, Scores, usual
from gpumanager.sim.trace.synthetic import MIXES
from gpumanager.sim.trace.values import Step, TracePod, Workload, kinds_on
from tests.sim.trace.made_up_traces import allocation, made_up

NAMES = sorted(policies(0))


@pytest.mark.parametrize("name", NAMES)
def test_kept_scores_are_those_of_the_rooms_as_they_are(name: str) -> None:
    replay = Replay(made_up(nodes=8), policies(1)[name], 1)
    for pod in replay.workload.pods:
        assert replay._rate(pod.ask).points == anew(replay, pod.ask)
        replay.place(pod.ask)


def anew(replay: Replay, ask: PodRequest) -> list[float]:
    scores = [replay.policy.score(room, ask, replay._mix) for room in replay.rooms]
    return [float("-inf") if score is None else score.points for score in scores]


class Plain(Replay):
    """Rates every node for every pod."""

    def _rate(self, ask: PodRequest) -> Scores:
        self._scores.clear()
        self._state_of = list(range(len(self.rooms)))
        return super()._rate(ask)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "random"])
@pytest.mark.parametrize("mix", ["mixed", "constrained"])
def test_a_run_with_kept_scores_goes_as_one_without(name: str, mix: str) -> None:
    workload = made_up(mix, nodes=10)
    kept, plain = (kind(workload, policies(1)[name], 1) for kind in (Replay, Plain))

    assert list(kept.run()) == list(plain.run())
    assert kept.rooms == plain.rooms


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(NAMES), st.sampled_from(sorted(MIXES)))
def test_every_pod_lies_where_it_may(seed: int, name: str, mix: str) -> None:
    replay = Replay(made_up(mix, nodes=5, seed=seed), policies(seed)[name], seed)
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


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_goes_the_same_way(name: str) -> None:
    first, second = (Replay(made_up(nodes=8), policies(3)[name], 3) for _ in range(2))

    assert list(first.run()) == list(second.run())
    assert first.rooms == second.rooms


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
    replay, recorder = Replay(workload, policies(1)["least-waste"], 1), Recorder(workload)
    asked = {"cores": 0, "cpu": 0, "memory": 0}
    for pod, step in zip(workload.pods, replay.run(), strict=True):
        recorder.saw(step)
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
    percent = recorder.outcome(rooms).allocation_percent
    assert percent == pytest.approx(100_000 * asked["cores"] / 100 / workload.capacity_milli)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(sorted(MIXES)))
def test_nothing_is_given_twice(seed: int, mix: str) -> None:
    replay = Replay(made_up(mix, nodes=5, seed=seed), policies(seed)["least-waste"], seed)
    for _ in replay.run():
        pass  # `after` refuses what does not fit

    assert all(0 <= gpu.cores <= 100 for room in replay.rooms for gpu in room.gpus)
    assert all(room.cpu_milli >= 0 and room.memory_mib >= 0 for room in replay.rooms)


def test_a_room_refuses_what_it_has_not() -> None:
    node = idle_node("n", "T4", 1, cpu_milli=4000, memory_mib=4096)
    ask = PodRequest((Request(60),), 1000, 1024)

    once = after(node, ask, ((0,),))

    assert kinds_on(once) == ("share",)

    with pytest.raises(ValueError, match="does not fit"):
        after(once, ask, ((0,),))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(sorted(MIXES)))
def test_who_leaves_gives_back_what_he_had(seed: int, mix: str) -> None:
    replay = Replay(made_up(mix, nodes=4, seed=seed), policies(seed)["least-waste"], seed)
    idle = list(replay.rooms)
    held = [(pod.ask, replay.place(pod.ask)) for pod in replay.workload.pods]

    for ask, spot in held:
        if spot is not None:
            replay.remove(ask, spot)

    assert [_as_left(room) for room in replay.rooms] == [_as_left(room) for room in idle]


def _as_left(room: FreeNode) -> FreeNode:
    return given_back(room, PodRequest(), ())


def test_who_comes_and_goes_keeps_what_is_asked_below_the_load() -> None:
    workload = made_up(nodes=10)
    replay = Replay(workload, policies(1)["least-waste"], 1)

    steps = list(Churn(replay, 0.9).run(400))

    assert max(step.asked_milli for step in steps) <= 0.9 * workload.capacity_milli
    free = sum(gpu.cores for room in replay.rooms for gpu in room.gpus)
    assert 10 * free == workload.capacity_milli - steps[-1].allocated_milli
    assert steps == list(Churn(Replay(workload, policies(1)["least-waste"], 1), 0.9).run(400))


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
    replay = Replay(workload, policies(5)["least-waste"], 5, mix=known)

    spots = [replay.place(pod.ask) for pod in replay.workload.pods]

    said = repr([(spot.node, spot.gpus) if spot else None for spot in spots])
    assert hashlib.sha256(said.encode()).hexdigest()[:16] == PLACED[mix]
    assert replay._mix is known


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pods_that_take_any_gpu_leave_a_scarce_model_to_those_that_name_it(seed: int) -> None:
    """One pod in ten names the model of a few nodes with two GPUs."""
    plain = made_up("mixed", nodes=60, load=1.0, seed=seed)
    pods = tuple(
        replace(pod, ask=replace(pod.ask, models=frozenset({"ash"}))) if n % 10 == 0 else pod
        for n, pod in enumerate(plain.pods)
    )
    workload = Workload(plain.nodes, pods)

    def refused(mix: Mix) -> int:
        replay = Replay(workload, policies(seed)["least-waste"], seed, mix=mix)
        spots = [(pod, replay.place(pod.ask)) for pod in pods if pod.gpu_milli]
        return sum(pod.gpu_milli for pod, spot in spots if pod.ask.models and spot is None)

    known = usual(workload)
    assert refused(known) < refused(replace(known, supply=()))


def test_a_replay_that_learns_that_pods_leave_keeps_no_old_scores() -> None:
    workload = made_up("several", nodes=20)
    replay = Replay(workload, policies(1)["least-waste"], 1)
    mixes = [replay._mix]
    for _ in Churn(replay, 0.7).run(1100):
        if replay._mix is not mixes[-1]:
            mixes.append(replay._mix)
            for pod in workload.pods:
                assert replay._rate(pod.ask).points == anew(replay, pod.ask)

    leaving = [mix.leaving for mix in mixes]
    assert leaving == sorted(set(leaving))
    assert leaving[-1] > 0.5


def test_names_in_the_same_order_change_nothing_where_pods_leave() -> None:
    workload = made_up("several", nodes=10)
    nodes = sorted(workload.nodes, key=lambda node: node.name)
    named = tuple(replace(node, name=f"{place:04}") for place, node in enumerate(nodes))
    first, second = (
        Replay(one, policies(3)["least-waste"], 3)
        for one in (workload, Workload(named, workload.pods))
    )

    assert list(Churn(first, 1.0).run(700)) == list(Churn(second, 1.0).run(700))


def test_of_a_churn_the_later_half_counts() -> None:
    workload = made_up(nodes=3)
    recorder = SteadyRecorder(workload, 3)
    for allocated in (500, 1000, 2000):
        recorder.saw(Step(2000, allocated, placed=True))

    outcome = recorder.outcome(workload.nodes)

    assert outcome.allocation_percent == pytest.approx(100 * 1500 / workload.capacity_milli)
    assert (outcome.pods, outcome.placed, outcome.at(100)) == (3, 3, None)


def test_ties_by_name_go_to_the_first() -> None:
    nodes = [idle_node(name, "T4", 1, cpu_milli=9000, memory_mib=9000) for name in "cab"]
    pods = (TracePod("p", PodRequest((Request(100),), 1000, 1000), 1000),)
    replay = Replay(Workload(tuple(nodes), pods), policies(0)["best-fit"], 0, names_decide=True)

    replay.place(pods[0].ask)

    assert [room.name for room in replay.rooms if not room.gpus[0].cores] == ["a"]


def test_names_of_nodes_change_only_ties() -> None:
    """Renamed and turned round, a run differs as one with another seed does."""
    workload = made_up(nodes=60)
    named = [
        idle_node(f"{len(workload.nodes) - at:04}", n.model, len(n.gpus),
                  cpu_milli=n.cpu_milli, memory_mib=n.memory_mib)
        for at, n in enumerate(workload.nodes)
    ]  # fmt: skip
    renamed = Workload(tuple(reversed(named)), workload.pods)

    assert abs(allocation(workload, "least-waste") - allocation(renamed, "least-waste")) < 1.0


GOLDEN = {
    "best-fit": 78.46,
    "binpack": 78.46,
    "claims": 79.05,
    "claims-stock": 78.92,
    "dot-product": 77.56,
    "fgd": 78.69,
    "fgd-exact": 78.69,
    "gpu-clustering": 77.46,
    "gpu-packing": 78.79,
    "least-waste": 79.05,
    "random": 77.34,
    "spread": 75.74,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_small_trace_ends_as_it_always_did(name: str) -> None:
    assert {name: round(allocation(made_up("shared", nodes=60), name), 2)} == {name: GOLDEN[name]}


def test_the_default_policy_gives_away_more_than_the_baselines() -> None:
    for mix in ("mixed", "shared", "constrained"):
        workload = made_up(mix, nodes=60, load=1.3)
        ours = allocation(workload, "least-waste")
        assert ours > max(allocation(workload, name) for name in ("fgd", "best-fit", "random"))


def test_a_curve_ends_where_the_run_did() -> None:
    workload = made_up(load=1.1)
    replay, recorder = Replay(workload, policies(1)["binpack"], 1), Recorder(workload)
    for step in replay.run():
        recorder.saw(step)
    outcome = recorder.outcome(replay.rooms)

    full = outcome.at(100)

    assert full is not None
    assert full <= outcome.allocation_percent == outcome.curve[-1][1]
    assert outcome.at(120) is None
    assert sum(gpus for gpus, _ in outcome.models.values()) * 1000 == workload.capacity_milli
