"""Score of one node for one shape of pod: by its policy, and by the node's own placement.

The policy scores the node and chooses the GPU for a share. The node's placement decides whether the
pod fits, and chooses several whole GPUs. If the pod prefers GPUs near to each other, their nearness
is part of the score.

For a pod whose GPUs come from claims, kube-scheduler takes the first devices of the node's slice
that fit. So the score is that of these devices, in the slice's current order.
"""

from dataclasses import dataclass
from typing import Final

from gpumanager.placement.near import nearness
from gpumanager.placement.policies import POLICIES, policy_of
from gpumanager.placement.policy import Policy, Score
from gpumanager.placement.preference import DEFAULT
from gpumanager.placement.slice_score import SliceScore
from gpumanager.placement.values import Refusal
from gpumanager.placement.workload_mix import UNKNOWN_MIX, Mix
from gpumanager.scheduler.node import MachineType, NodeState
from gpumanager.scheduler.scoring.packing import Packing, Positions
from gpumanager.scheduler.scoring.pod_shape import ANY, PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit, full, unfit

REMEMBERED_SEARCHES: Final = 256
"""Searches for whole GPUs whose results a shape keeps: they take milliseconds on large machines."""
WORST: Final = -1e6
"""Points of a node on which a pod fits only in a way that its policy does not see."""

DECIMALS: Final = 4
"""Of points: what is finer makes ten thousand ranks, and nothing better."""
NO_DEVICES: Final = "node(s) didn't have the devices that the pod's claims ask for"


@dataclass(frozen=True, slots=True)
class Fit:
    """A node that will do. points: of the policy, higher is better. packing: what it would take."""

    points: float
    packing: Packing


Verdict = Fit | Unfit


class NodeScorer:
    """For one shape of pod. models: names of GPUs that there are in the cluster. mix: of pods that
    are usual; another one changes points, and on which GPU a share is best."""

    def __init__(
        self, ask: PodShape, models: frozenset[str] = frozenset(), mix: Mix = UNKNOWN_MIX
    ) -> None:
        preference = ask.preference
        self.mix = mix
        self._pod = ask
        self._ask = ask.pod_request(models)
        nodes = preference.nodes or DEFAULT.nodes
        self._policy: Policy = (
            SliceScore(nodes, ordered=False)
            if ask.claimed
            else policy_of(nodes, alone=not preference.near)
        )
        self._gpus: Policy | None = POLICIES[preference.gpus] if preference.gpus else None
        self._simple = (
            len(ask.requests) == 1 and ask.wish is ANY and not (preference.near or ask.claimed)
        )
        # Where single GPUs are named, nodes that are built alike are not alike.
        named = ask.wish.uuids or ask.wish.not_uuids
        self._alike = not named and all(request.whole_gpus for request in ask.requests)
        self._packings: dict[tuple[MachineType | None, Positions], Packing | Refusal] = {}

    def of(self, node: NodeState, *, full_is_enough: bool = False) -> Verdict:
        """Return the node's points and what the pod would take, or why it does not fit.

        full_is_enough: where no GPU has room, the phrase without its detail is enough.
        """
        if full_is_enough and self._simple and (why := full(node, self._pod)):
            return why
        score = self.score(node)
        if self._pod.claimed:  # links between GPUs are not weighed: the slice's order does
            if score is None:
                return Unfit(NO_DEVICES)
            return Fit(round(score.points, DECIMALS), Packing(score.gpus, {}))
        packing = self._place(node, score)
        if isinstance(packing, Refusal):
            return unfit(node, self._pod, packing)
        points = WORST if score is None else score.points
        if self._pod.preference.near:
            points += nearness(node.topology, packing.gpus, self._pod.preference)
        return Fit(round(points, DECIMALS), packing)

    def _place(self, node: NodeState, score: Score | None) -> Packing | Refusal:
        if self._alike:
            # Links between whole GPUs are the node's affair: all nodes that are built alike and
            # have the same GPUs free get the same ones.
            key = node.machine, node.whole_gpus
            if key not in self._packings:
                if len(self._packings) >= REMEMBERED_SEARCHES:
                    self._packings.clear()
                self._packings[key] = node.place(self._pod)
            return self._packings[key]
        if score is not None and self._gpus is not None:
            score = self._gpus.score(node.free_for(self._pod), self._ask, self.mix)
        wanted: list[Positions] = [()] * len(self._pod.requests)
        for place, gpus in zip(self._pod.together, score.gpus if score else (), strict=False):
            if not self._pod.requests[place].whole_gpus:
                wanted[place] = gpus
        return node.place(self._pod, tuple(wanted))

    def score(self, node: NodeState) -> Score | None:
        """Return the score by the policy."""
        return self._policy.score(node.free_for(self._pod), self._ask, self.mix)
