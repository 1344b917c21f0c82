"""Score of one node for one shape of pod whose GPUs come from claims.

kube-scheduler takes the first devices of the node's slice that fit. So the score is that of these
devices, in the slice's current order.
"""

from typing import Final

from gpumanager.placement.policy import Score
from gpumanager.placement.preference import DEFAULT
from gpumanager.placement.slice_score import SliceScore
from gpumanager.placement.workload_mix import UNKNOWN_MIX, Mix
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.scoring.node_scorer import Fit, NodeScorer, Verdict, rounded
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import Brief, Unfit

NO_DEVICES: Final = "node(s) didn't have the devices that the pod's claims ask for"


class SliceScorer(NodeScorer):
    """The same for pods with claims. Links between GPUs are not weighed: the slice's order does."""

    def __init__(
        self, ask: PodShape, models: frozenset[str] = frozenset(), mix: Mix = UNKNOWN_MIX
    ) -> None:
        super().__init__(ask, models, mix)
        self._slice = SliceScore(ask.preference.nodes or DEFAULT.nodes, ordered=False)

    def brief(self, node: NodeState) -> float | Brief:
        score = self.score(node)
        return (NO_DEVICES, False) if score is None else rounded(score)

    def of(self, node: NodeState) -> Verdict:
        score = self.score(node)
        return Unfit(NO_DEVICES) if score is None else Fit(rounded(score), Packing(score.gpus, {}))

    def score(self, node: NodeState) -> Score | None:
        """By the policy."""
        return self._slice.score(node.offered_to(self._pod), self._ask, self.mix)
