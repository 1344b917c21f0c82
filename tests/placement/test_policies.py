"""What each policy is for, as a table: of these nodes it takes this one, and on it these GPUs.

Who adds a policy adds a row to it and to `gpumanager/placement/policies.py`.
"""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.placement.least_waste import tie_breaker
from gpumanager.placement.policies import POLICIES, TABLE, Weighing, policy_of
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import Mix
from tests.placement.free_nodes import ask, asks, flaws, mixes, room, rooms, usual

MIX = usual((50, 4, 1), (100, 8, 3))


@dataclass(frozen=True)
class Golden:
    """nodes: by the free cores of their GPUs. node: which of them is taken."""

    policy: str
    nodes: tuple[tuple[int, ...], ...]
    ask: PodRequest
    node: int
    gpus: tuple[int, ...]


GOLDEN = (
    Golden("least-waste", ((100, 100), (100, 50)), ask(50), 1, (1,)),
    Golden("least-waste", ((100, 60, 50), (100, 100, 100)), ask(50), 0, (2,)),
    Golden("least-waste", ((100, 100, 50), (100, 100, 100)), ask(200), 0, (0, 1)),
    Golden("binpack", ((100, 70), (100, 40)), ask(30), 1, (1,)),
    Golden("binpack", ((100, 100, 100, 100), (100, 100, 0, 0)), ask(100), 1, (0,)),
    Golden("spread", ((100, 70), (100, 40)), ask(30), 0, (0,)),
    Golden("spread", ((100, 100, 0, 0), (100, 100, 100, 100)), ask(100), 1, (0,)),
)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row.policy}-{row.ask.cores}")
def test_a_policy_takes_the_node_and_the_gpus_of_its_row(row: Golden) -> None:
    scores = [POLICIES[row.policy].score(room(*free), row.ask, MIX) for free in row.nodes]
    best = max(range(len(scores)), key=lambda n: points(scores[n]))

    assert (best, taken(scores[best])) == (row.node, (row.gpus,))


def points(score: object) -> float:
    return getattr(score, "points", float("-inf"))


def taken(score: object) -> object:
    return getattr(score, "gpus", None)


def test_every_policy_has_its_rows() -> None:
    without = set(POLICIES) - {row.policy for row in GOLDEN}

    assert without == set(), "write rows into GOLDEN, above, for these policies"
    assert len(POLICIES) == len(TABLE)


def test_of_nodes_with_equal_gpus_the_cpu_decides() -> None:
    plenty, little = room(100, 40, cpus=64), room(100, 40, cpus=8)

    for policy, more, less in (("spread", plenty, little), ("binpack", little, plenty)):
        scores = [points(POLICIES[policy].score(one, ask(30), MIX)) for one in (more, less)]
        assert scores[0] > scores[1]


def test_nodes_that_are_alike_to_the_default_are_told_apart_by_what_is_free() -> None:
    small, large, fed = room(100, cpus=8), room(100, 100, cpus=8), room(100, cpus=9)

    assert 0 < tie_breaker(small) < tie_breaker(fed) < tie_breaker(large) < 1


def test_what_counts_more_decides() -> None:
    fuller, emptier = room(100, 40), room(100, 100)

    def best(*weights: tuple[str, float]) -> FreeNode:
        policy = policy_of(weights)
        return max((fuller, emptier), key=lambda one: points(policy.score(one, ask(30), MIX)))

    assert best(("binpack", 0.1), ("spread", 9.0)) == emptier
    assert best(("binpack", 9.0), ("spread", 0.1)) == fuller


def test_the_gpu_is_chosen_by_what_counts_most() -> None:
    here = room(100, 40)

    assert taken(Weighing((("binpack", 1), ("spread", 2))).score(here, ask(30), MIX)) == ((0,),)
    assert taken(Weighing((("binpack", 1), ("spread", 1))).score(here, ask(30), MIX)) == ((1,),)


@given(rooms(), asks(), mixes, st.permutations(sorted(POLICIES)))
def test_several_policies_name_what_can_be_kept_or_nothing(
    here: FreeNode, wanted: PodRequest, mix: Mix, names: list[str]
) -> None:
    score = Weighing(tuple((name, 1.0) for name in names)).score(here, wanted, mix)

    assert score is None or flaws(here, wanted, score.gpus) == []
