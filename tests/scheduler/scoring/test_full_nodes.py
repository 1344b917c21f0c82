"""Of a node without room the reason is found without placing the pod, and it is the same."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.scoring.node_scorer import Fit, NodeScorer
from gpumanager.scheduler.state import ClusterState
from tests.scheduler.scheduler_world import ask, node_object

FREE = st.tuples(st.integers(0, 100), st.integers(0, 60))
ASKS = st.sampled_from([(30, 4), (30, 60), (50, 70), (100, 0), (200, 0), (800, 0), (10, 1)])


@given(st.lists(FREE, min_size=4, max_size=4), ASKS)
def test_the_phrase_of_a_full_node_is_that_of_placing_the_pod_there(
    free: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    state = ClusterState()
    state.node(read_node(node_object("a", 4)))
    node = state.nodes["a"]
    gpus = tuple(
        one._replace(cores=cores, blocks=blocks)
        for one, (cores, blocks) in zip(node.gpus, free, strict=True)
    )
    node = replace(node, gpus=gpus)
    scorer = NodeScorer(ask(wanted))

    placed, short = scorer.of(node), scorer.of(node, full_is_enough=True)

    if isinstance(placed, Fit):
        assert short == placed
    else:
        assert not isinstance(short, Fit)
        assert (short.phrase, short.final) == (placed.phrase, placed.final)
