"""The policies a cluster, and a node, can choose from, by name, and several of them at once.

A new one is a file with a class that has `score`, and a row here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gpumanager.placement.binpack import Binpack, Spread
from gpumanager.placement.least_waste import STEP, LeastWaste
from gpumanager.placement.policy import Policy, Score
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import Mix
from gpumanager.units import CORES_PER_GPU


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy that can be chosen.

    unit: the difference in its points that counts as 1 where it is weighed against others: a GPU
    that becomes useless, a GPU that is free, a whole node that is free. says: in a few words.
    """

    name: str
    policy: Policy
    unit: float
    says: str


TABLE: Final = (
    PolicyRow("least-waste", LeastWaste(), CORES_PER_GPU / STEP, "what is free stays useful"),
    PolicyRow("binpack", Binpack(), CORES_PER_GPU, "the fullest node, and GPU"),
    PolicyRow("spread", Spread(), 1.0, "the emptiest node, and GPU"),
)

ROWS: Final = MappingProxyType({row.name: row for row in TABLE})
POLICIES: Final = MappingProxyType({row.name: row.policy for row in TABLE})
DEFAULT_POLICY: Final = "least-waste"
"""Of a cluster."""
BINPACK: Final = "binpack"
"""Of a node on which no other is set: the mix of a cluster is not known there."""

Weights = Sequence[tuple[str, float]]
"""Names of policies, and how much each counts."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """Several policies at once: the sum of what each says, in its unit, by its weight.

    The GPUs on the node are the choice of the one that counts most, the first of equals.
    """

    weights: Weights

    def score(self, node: FreeNode, pod: PodRequest, mix: Mix) -> Score | None:
        scores = [(name, by, POLICIES[name].score(node, pod, mix)) for name, by in self.weights]
        found = [(by * one.points / ROWS[name].unit, by, one) for name, by, one in scores if one]
        if len(found) < len(scores):
            return None
        heaviest = max(found, key=lambda row: row[1])[2]
        return Score(sum(points for points, _, _ in found), heaviest.gpus)


def policy_of(weights: Weights, *, alone: bool = True) -> Policy:
    """Return one policy, or several. alone: nothing else is weighed, so one has its own points."""
    return POLICIES[weights[0][0]] if alone and len(weights) == 1 else Weighing(weights)
