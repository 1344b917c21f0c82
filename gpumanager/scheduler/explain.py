"""Why a pod is where it is, or nowhere: the last verdicts, remembered for `/explain`."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpumanager.scheduler.decide import Left

PODS: Final = 4096
"""How many are remembered: those that were asked about last."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One phrase: of how many nodes it was the reason, and what it means on one of them."""

    phrase: str
    nodes: int
    example: str
    detail: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """at: seconds since the epoch. fitting: how many nodes would have done.

    bound: the node, once it is bound. trouble: why the pod could not be placed anywhere, or bound.
    """

    uid: str
    at: float
    nodes: int = 0
    fitting: int = 0
    reasons: tuple[Reason, ...] = ()
    bound: str = ""
    trouble: str = ""

    def as_json(self) -> dict[str, Any]:
        reasons = [
            {"reason": r.phrase, "nodes": r.nodes, "example": r.example, "detail": r.detail}
            for r in self.reasons
        ]
        return {
            "uid": self.uid,
            "time": self.at,
            "nodes": self.nodes,
            "fitting": self.fitting,
            "reasons": reasons,
            "bound": self.bound,
            "trouble": self.trouble,
        }


@dataclass(slots=True)
class Memory:
    """The last explanation of each pod, by namespace and name."""

    most: int = PODS
    _pods: "OrderedDict[tuple[str, str], Explanation]" = field(default_factory=OrderedDict)

    def remember(self, namespace: str, name: str, explanation: Explanation) -> None:
        self._pods[namespace, name] = explanation
        self._pods.move_to_end((namespace, name))
        while len(self._pods) > self.most:
            self._pods.popitem(last=False)

    def of(self, namespace: str, name: str) -> Explanation | None:
        return self._pods.get((namespace, name))

    def __len__(self) -> int:
        return len(self._pods)


def reasons(left: Sequence[Left]) -> tuple[Reason, ...]:
    """The commonest first."""
    found = (Reason(one.why.phrase, len(one.names), one.example, one.why.detail) for one in left)
    return tuple(sorted(found, key=lambda one: -one.nodes))
