"""The trace that is replayed: read, arranged, made up, and placed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumanager.errors import InputError
from gpumanager.placement.cluster import Ask
from gpumanager.placement.policies import POLICIES
from gpumanager.placement.values import Request
from gpumanager.sim.trace.baselines import policies
from gpumanager.sim.trace.chart import chart, mean_curve
from gpumanager.sim.trace.loader import idle_node, read_nodes, read_pods
from gpumanager.sim.trace.order import arrange
from gpumanager.sim.trace.replay import Recorder, Replay, Scores, after
from gpumanager.sim.trace.synthetic import MIXES, make_nodes, make_pods
from gpumanager.sim.trace.values import TracePod, Workload, kinds_on

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
NAMES = sorted(policies(0))


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def made_up(mix: str = "mixed", nodes: int = 30, seed: int = 5, load: float = 1.2) -> Workload:
    found = make_nodes(nodes, seed)
    return arrange(found, make_pods(found, MIXES[mix], seed), load, seed)


def allocation(workload: Workload, name: str, seed: int = 5) -> float:
    replay, recorder = Replay(workload, policies(seed)[name], seed), Recorder(workload)
    for step in replay.run():
        recorder.saw(step)
    return recorder.outcome(replay.rooms).allocation_percent


def test_pods_are_read_as_published(tmp_path: Path) -> None:
    rows = "a,12000,16384,1,455,,LS\nb,6000,1024,2,1000,T4|P100,LS\nc,1000,512,0,0,,BE\n"
    path = written(tmp_path / "pods.csv", PODS + rows)

    assert read_pods(path) == (
        TracePod("a", Ask((Request(46),), 12000, 16384), 455),
        TracePod("b", Ask((Request(200),), 6000, 1024, frozenset({"T4", "P100"})), 2000),
        TracePod("c", Ask((), 1000, 512), 0),
    )


def test_nodes_are_read_as_published_in_any_order_of_columns(tmp_path: Path) -> None:
    text = "model,gpu,sn,memory_mib,cpu_milli\r\nP100,2,n,262144,64000\r\n"

    (node,) = read_nodes(written(tmp_path / "nodes.csv", text))

    assert node == idle_node("n", "P100", 2, cpu_milli=64000, memory_mib=262144)
    assert [gpu.free_cores for gpu in node.gpus] == [100, 100]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "pods.csv:1: no column name, cpu_milli, memory_mib, num_gpu, gpu_milli"),
        ("name,cpu_milli\n", "pods.csv:1: no column memory_mib, num_gpu, gpu_milli"),
        (PODS, "pods.csv: has no rows below its header"),
        (PODS + "a,1,1,0,0,,\nb,x,1,1,500,,\n", "pods.csv:3: cpu_milli is 'x'"),
        (PODS + "a,1,1,1,1001,,\n", "pods.csv:2: gpu_milli is '1001': write a whole number from 0"),
        (PODS + "a,1,1,1,0,,\n", "pods.csv:2: gpu_milli is 0"),
        (PODS + "a,1,1,2,500,,\n", "pods.csv:2: gpu_milli is 500: of several GPUs each is whole"),
        (PODS + "a,1,1,-1,500,,\n", "pods.csv:2: num_gpu is '-1'"),
        (PODS + "a,1\n", "pods.csv:2: num_gpu is ''"),
        (PODS + f"a,{'9' * 5000},1,1,500,,\n", "pods.csv:2: cpu_milli is '9999"),
        (PODS + 'a,"1\n', "pods.csv:2: not a CSV file: unexpected end of data"),
        (PODS.encode() + b"\xff\xfe,1,1,1,1,,\n", "pods.csv: not a text file in UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(
    text: str | bytes, complaint: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "pods.csv", text)

    with pytest.raises(InputError) as raised:
        read_pods(path)

    assert complaint in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.csv: No such file"):
        read_nodes(tmp_path / "none.csv")


@given(st.binary(max_size=200))
def test_no_file_is_worse_than_unreadable(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "any.csv", content)

    with pytest.raises(InputError):
        read_nodes(path)


def test_a_load_is_reached_by_drawing_pods_again() -> None:
    nodes = make_nodes(20, 1)
    pods = make_pods(nodes, MIXES["mixed"], 1)

    workload = arrange(nodes, pods, 1.5, 7)

    asked = [pod.gpu_milli for pod in workload.pods]
    assert sum(asked) >= 1.5 * workload.capacity_milli > sum(asked[:-1])
    assert sorted(pod.name for pod in workload.pods[: len(pods)]) == [pod.name for pod in pods]
    assert set(workload.pods) == set(pods)


def test_a_load_below_what_the_trace_asks_takes_its_first_pods() -> None:
    half, all_of_it = made_up(load=0.5), made_up(load=1.0)

    assert half.pods == all_of_it.pods[: len(half.pods)]


def test_the_seed_decides_the_order() -> None:
    nodes = make_nodes(10, 1)
    pods = make_pods(nodes, MIXES["mixed"], 1)

    assert arrange(nodes, pods, 1.0, 3) == arrange(nodes, pods, 1.0, 3)
    assert arrange(nodes, pods, 1.0, 3).pods != arrange(nodes, pods, 1.0, 4).pods


@pytest.mark.parametrize("missing", ["pods", "nodes"])
def test_without_gpus_there_is_no_load(missing: str) -> None:
    nodes = (idle_node("n", "", 0 if missing == "nodes" else 1, cpu_milli=1, memory_mib=1),)
    pods = (TracePod("a", Ask(), 0 if missing == "pods" else 1000),)

    with pytest.raises(InputError, match=missing):
        arrange(nodes, pods, 1.0, 1)


@pytest.mark.parametrize("name", NAMES)
def test_kept_scores_are_those_of_the_rooms_as_they_are(name: str) -> None:
    replay = Replay(made_up(nodes=8), policies(1)[name], 1)
    for pod in replay.workload.pods:
        kept = replay._up_to_date(pod.ask)
        fresh = [replay.policy.score(room, pod.ask, replay._mix) for room in replay.rooms]
        points = [float("-inf") if score is None else score.points for score in fresh]
        assert kept.points == points
        replay.place(pod.ask)


class Plain(Replay):
    """Rates every node for every pod."""

    def _up_to_date(self, ask: Ask) -> Scores:
        self._scores.clear()
        self._state_of = list(range(len(self.rooms)))
        return super()._up_to_date(ask)


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
        assert len(changed) == (placed and pod.ask != Ask())
        for old, new in changed:
            assert not (pod.ask.models and pod.ask.requests) or old.model in pod.ask.models
            assert old.cpu_milli - new.cpu_milli == pod.ask.cpu_milli
            assert old.memory_mib - new.memory_mib == pod.ask.memory_mib
            assert sum(gpu.free_cores for gpu in old.gpus) - pod.ask.cores == sum(
                gpu.free_cores for gpu in new.gpus
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
        "cores": sum(100 - gpu.free_cores for room in rooms for gpu in room.gpus),
        "cpu": sum(room.whole_cpu_milli - room.cpu_milli for room in rooms),
        "memory": sum(room.whole_memory_mib - room.memory_mib for room in rooms),
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

    assert all(0 <= gpu.free_cores <= 100 for room in replay.rooms for gpu in room.gpus)
    assert all(room.cpu_milli >= 0 and room.memory_mib >= 0 for room in replay.rooms)


def test_a_room_refuses_what_it_has_not() -> None:
    node = idle_node("n", "T4", 1, cpu_milli=4000, memory_mib=4096)
    ask = Ask((Request(60),), 1000, 1024)

    once = after(node, ask, ((0,),))

    assert kinds_on(once) == {"share"}
    with pytest.raises(ValueError, match="does not fit"):
        after(once, ask, ((0,),))


def test_ties_by_name_go_to_the_first() -> None:
    nodes = [idle_node(name, "T4", 1, cpu_milli=9000, memory_mib=9000) for name in "cab"]
    pods = (TracePod("p", Ask((Request(100),), 1000, 1000), 1000),)
    replay = Replay(Workload(tuple(nodes), pods), policies(0)["best-fit"], 0, names_decide=True)

    replay.place(pods[0].ask)

    assert [room.name for room in replay.rooms if not room.gpus[0].free_cores] == ["a"]


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
    "dot-product": 77.56,
    "fgd": 78.79,
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


def test_runs_of_one_load_are_drawn_as_their_mean() -> None:
    one, other = [(1.0, 1.0), (2.25, 2.0)], [(1.0, 1.0), (2.0, 1.5), (3.0, 2.5)]

    assert mean_curve([one, other]) == ((1.0, 1.0), (2.125, 1.75), (2.625, 2.25))


def test_what_is_low_is_drawn_too() -> None:
    drawn = chart({"low": [(30.0, 30.0), (130.0, 41.0)], "lower": [(30.0, 30.0), (130.0, 40.5)]})

    heights = [float(y) for y in re.findall(r"d='M596 ([0-9.]+)h10'", drawn)]
    assert drawn.count("stroke-width='1.8'") == 2
    assert len(heights) == 2
    assert all(40 <= height <= 376 for height in heights)
    assert heights[1] - heights[0] >= 15


def test_names_do_not_leave_the_page() -> None:
    drawn = chart({f"p{number}": [(90.0, 80.0), (130.0, 80.0)] for number in range(10)})

    heights = [float(y) for y in re.findall(r"d='M596 ([0-9.]+)h10'", drawn)]
    assert len(heights) == 10
    assert max(heights) <= 376
    assert sorted(set(heights)) == heights


def test_a_drawing_has_a_line_and_a_name_for_each_policy() -> None:
    drawn = chart({"a<b": [(90.0, 89.0), (130.0, 95.0)], "c": [(90.0, 88.0), (130.0, 91.0)]})

    assert drawn.startswith("<svg")
    assert "a&lt;b 95.0" in drawn
    assert drawn.count("stroke-width='1.8'") == 2
