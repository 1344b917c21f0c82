"""Published policies, and pods that leave: `python benchmarks/replay.py`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import replay
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_baselines import Fgd, kinds_on, policies, typical_of
from replay_churn import Churn, ReplayWithDepartures, given_back, steady_allocation

from gpumanager.cli.replay import POLICIES
from gpumanager.placement.values import FreeNode, PodRequest, Request
from gpumanager.sim.replay import Step
from gpumanager.sim.trace import MIXES, Workload, idle_node
from tests.sim.made_up_traces import allocated_by, made_up
from tests.sim.test_trace_replay import anew

ENDS = {
    "best-fit": 78.46,
    "claims-stock": 78.92,
    "dot-product": 77.56,
    "fgd": 78.69,
    "fgd-exact": 78.69,
    "gpu-clustering": 77.46,
    "gpu-packing": 78.79,
    "least-waste": 79.05,
    "random": 77.87,
}


def allocated(workload: Workload, name: str, seed: int = 5) -> float:
    policy = policies(seed)[name]
    mix = typical_of(workload.pods) if isinstance(policy, Fgd) else None
    return allocated_by(ReplayWithDepartures(workload, policy, seed, mix=mix))


@pytest.mark.parametrize("name", ENDS)
def test_a_small_trace_ends_as_it_always_did(name: str) -> None:
    assert round(allocated(made_up("shared", nodes=60), name), 2) == ENDS[name]


@pytest.mark.parametrize("name", sorted(policies(0).keys() - POLICIES.keys()))
def test_kept_scores_are_those_of_the_rooms_as_they_are(name: str) -> None:
    one = ReplayWithDepartures(made_up(nodes=8), policies(1)[name], 1)
    for pod in one.workload.pods if name != "random" else ():
        assert one.rate(pod.ask) == anew(one, pod.ask)
        one.place(pod.ask)


def test_a_node_knows_which_kinds_of_pods_it_runs() -> None:
    node = idle_node("n", "T4", 1, cpu_milli=4000, memory_mib=4096)
    one = ReplayWithDepartures(Workload((node,), ()), POLICIES["binpack"], 1)

    once = one.occupy(node, PodRequest((Request(60),), 1000, 1024), ((0,),))

    assert kinds_on(once) == ("share",)


@pytest.mark.parametrize(("more", "pods"), [([], None), (["--churn", "60", "--load", "1"], 60)])
def test_the_program_prints_what_the_command_prints(
    more: list[str], pods: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    replay.main(
        ["--synthetic", "mixed", "--synthetic-nodes", "10", "--policy", "fgd", "--json", *more]
    )

    printed = json.loads(capsys.readouterr().out)
    assert printed["policy"] == "fgd"
    assert pods in {None, printed["pods"]}
    assert 0 < printed["gpu_allocation_percent"] <= 100


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(sorted(MIXES)))
def test_who_leaves_gives_back_what_he_had(seed: int, mix: str) -> None:
    one = ReplayWithDepartures(made_up(mix, nodes=4, seed=seed), POLICIES["least-waste"], seed)
    idle = list(one.rooms)
    held = [(pod.ask, one.place(pod.ask)) for pod in one.workload.pods]

    for ask, spot in held:
        if spot is not None:
            one.remove(ask, spot)

    assert [_as_left(room) for room in one.rooms] == [_as_left(room) for room in idle]


def test_who_comes_and_goes_keeps_what_is_asked_below_the_load() -> None:
    workload = made_up(nodes=10)
    one = ReplayWithDepartures(workload, POLICIES["least-waste"], 1)

    steps = list(Churn(one, 0.9).run(400))

    assert max(step.asked for step in steps) <= 90
    free = sum(gpu.cores for room in one.rooms for gpu in room.gpus)
    lacking = 1 - 10 * free / workload.capacity_milli
    assert 100 * lacking == pytest.approx(steps[-1].allocated)
    assert steps == list(
        Churn(ReplayWithDepartures(workload, POLICIES["least-waste"], 1), 0.9).run(400)
    )


def test_a_replay_that_learns_that_pods_leave_keeps_no_old_scores() -> None:
    workload = made_up("several", nodes=20)
    one = ReplayWithDepartures(workload, POLICIES["least-waste"], 1)
    mixes = [one._mix]
    for _ in Churn(one, 0.7).run(1100):
        if one._mix is not mixes[-1]:
            mixes.append(one._mix)
            for pod in workload.pods:
                assert one.rate(pod.ask) == anew(one, pod.ask)

    leaving = [mix.leaving for mix in mixes]
    assert leaving == sorted(set(leaving))
    assert leaving[-1] > 0.5


def test_names_in_the_same_order_change_nothing_where_pods_leave() -> None:
    workload = made_up("several", nodes=10)
    nodes = sorted(workload.nodes, key=lambda node: node.name)
    named = tuple(replace(node, name=f"{place:04}") for place, node in enumerate(nodes))
    first, second = (
        ReplayWithDepartures(each, POLICIES["least-waste"], 3)
        for each in (workload, Workload(named, workload.pods))
    )

    assert list(Churn(first, 1.0).run(700)) == list(Churn(second, 1.0).run(700))


def test_of_a_churn_the_later_half_counts() -> None:
    steps = [Step(100, allocated, placed=True) for allocated in (5, 10, 20)]

    assert steady_allocation(steps) == 15


@pytest.mark.parametrize("seeds", [[], ["--seed", "2"]])
def test_a_plot_has_a_line_for_each_policy(seeds: list[str], tmp_path: Path) -> None:
    trace = ["--synthetic", "mixed", "--synthetic-nodes", "10", "--seed", "1", *seeds]
    names = ["--policy", "fgd", "--policy", "least-waste"]

    replay.main([*trace, *names, "--plot", str(tmp_path / "load.svg")])

    drawn = (tmp_path / "load.svg").read_text()
    assert drawn.startswith("<svg")
    assert drawn.count("stroke-width='1.8'") == 2


def test_the_default_policy_allocates_more_than_the_baselines() -> None:
    for mix in ("mixed", "shared", "constrained"):
        workload = made_up(mix, nodes=60, load=1.3)
        ours = allocated(workload, "least-waste")
        assert ours > max(allocated(workload, name) for name in ("fgd", "best-fit", "random"))


def _as_left(room: FreeNode) -> FreeNode:
    return given_back(room, PodRequest(), ())
