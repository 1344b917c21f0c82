"""Score of one node for one shape of pod: by its policy, and by the node's own placement.

The policy scores the node and chooses the GPU for a share. The node's placement decides whether the
pod fits, and chooses several whole GPUs. If the pod prefers GPUs near to each other, their nearness
is part of the score.
"""

from dataclasses import dataclass
from typing import Final

from gpumanager.placement.near import nearness
from gpumanager.placement.policies import POLICIES, policy_of
from gpumanager.placement.policy import Policy, Score
from gpumanager.placement.preference import DEFAULT
from gpumanager.placement.values import Refusal
from gpumanager.placement.workload_mix import UNKNOWN_MIX, Mix
from gpumanager.scheduler.node import MachineType, NodeState
from gpumanager.scheduler.scoring.packing import Packing, Positions
from gpumanager.scheduler.scoring.pod_shape import ANY, PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import Brief, Unfit, brief, unfit

REMEMBERED_SEARCHES: Final = 256
"""Searches for whole GPUs whose results a shape keeps: they take milliseconds on large machines."""
WORST: Final = -1e6
"""Points of a node on which a pod fits only in a way that its policy does not see."""

DECIMALS: Final = 4
"""Of points: what is finer makes ten thousand ranks, and nothing better."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A node that will do. points: of the policy, higher is better. packing: what it would take."""

    points: float
    packing: Packing


Verdict = Fit | Unfit


class NodeScorer:
    """For one shape of pod. models: names of GPUs that there are in the cluster."""

    def __init__(
        self, ask: PodShape, models: frozenset[str] = frozenset(), mix: Mix = UNKNOWN_MIX
    ) -> None:
        wish, preference = ask.wish, ask.preference
        self.mix = mix
        self._pod = ask
        self._ask = ask.pod_request(models)
        self._places = ask.together
        self._policy = policy_of(preference.nodes or DEFAULT.nodes, alone=not preference.near)
        self._gpus: Policy | None = POLICIES[preference.gpus] if preference.gpus else None
        self._simple = len(ask.requests) == 1 and wish is ANY and not preference.near
        self._whole = all(request.whole_gpus for request in ask.requests)
        self._packings: dict[tuple[MachineType | None, Positions], Packing | Refusal] = {}

    def use(self, mix: Mix) -> None:
        """From now on this is usual. It changes points, and on which GPU a share is best."""
        self.mix = mix

    def brief(self, node: NodeState) -> float | Brief:
        """Points, or why not: what `of` would say, without what it would take."""
        if not self._simple:
            found = self.of(node)
            return found.points if isinstance(found, Fit) else (found.phrase, found.final)
        return brief(node, self._pod) or rounded(self.score(node))

    def of(self, node: NodeState) -> Verdict:
        score = self.score(node)
        packing = self._pack(node, self._wanted(node, score))
        if isinstance(packing, Refusal):
            return unfit(node, self._pod, packing)
        near = 0.0
        if self._pod.preference.near:
            near = nearness(node.topology, packing.gpus, self._pod.preference)
        return Fit(rounded(score, near), packing)

    def score(self, node: NodeState) -> Score | None:
        """By the policy."""
        return self._policy.score(node.free_for(self._pod), self._ask, self.mix)

    def _pack(self, node: NodeState, wanted: tuple[Positions, ...]) -> Packing | Refusal:
        if not self._whole or self._pod.wish.names_gpus:
            return node.place(self._pod, wanted)
        key = node.machine, node.whole_gpus
        found = self._packings.get(key)
        if found is None:
            if len(self._packings) >= REMEMBERED_SEARCHES:
                self._packings.clear()
            found = self._packings[key] = node.place(self._pod)
        return found

    def _wanted(self, node: NodeState, score: Score | None) -> tuple[Positions, ...]:
        """For shares: links between whole GPUs are the node's affair."""
        if score is not None and self._gpus is not None:
            score = self._gpus.score(node.free_for(self._pod), self._ask, self.mix)
        wanted: list[Positions] = [()] * len(self._pod.requests)
        for place, gpus in zip(self._places, score.gpus if score else (), strict=False):
            if not self._pod.requests[place].whole_gpus:
                wanted[place] = gpus
        return tuple(wanted)


def rounded(score: Score | None, near: float = 0.0) -> float:
    return round((WORST if score is None else score.points) + near, DECIMALS)
