"""Why a pod is on its node, or pending: the last verdicts, kept for `/explain`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final

from gpumanager.scheduler.scoring.verdicts import Left, Scores

Row = Mapping[str, Any]
PODS: Final = 4096
"""How many are remembered: those of the last requests."""
REASON_LETTERS: Final = 512
"""Letters of a reason: the client may have chosen them."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """at: seconds since the epoch. policy: by which nodes were compared. fitting: how many nodes
    would have done. best: those with the most points. bound: the node, once it is bound; points:
    which it had then. trouble: why the pod could not be placed anywhere, or bound.

    reasons, best, gpus: rows as JSON has them.
    """

    uid: str
    at: float
    policy: str = ""
    nodes: int = 0
    fitting: int = 0
    reasons: tuple[Row, ...] = ()
    best: tuple[Row, ...] = ()
    bound: str = ""
    points: float | None = None
    gpus: tuple[Row, ...] = ()
    trouble: str = ""

    def as_json(self) -> dict[str, Any]:
        return {("time" if name == "at" else name): one for name, one in asdict(self).items()}


@dataclass(slots=True)
class ExplanationStore:
    """The last explanation of each pod, by namespace and name."""

    _pods: dict[tuple[str, str], Explanation] = field(default_factory=dict)

    def remember(self, namespace: str, name: str, explanation: Explanation) -> None:
        self._pods.pop((namespace, name), None)
        self._pods[namespace, name] = explanation
        if len(self._pods) > PODS:
            del self._pods[next(iter(self._pods))]

    def of(self, namespace: str, name: str) -> Explanation | None:
        return self._pods.get((namespace, name))

    def newest(self) -> Iterator[tuple[tuple[str, str], Explanation]]:
        """Yield namespace and name, and what is known; the pod of the last request comes first."""
        return reversed(self._pods.items())


def reasons(left: Sequence[Left]) -> tuple[Row, ...]:
    """Return each phrase: of how many nodes it was the reason, and what it means on one of them;
    the commonest first."""
    rows = (
        {
            "reason": one.why.phrase[:REASON_LETTERS],
            "nodes": len(one.names),
            "example": one.names[0][:REASON_LETTERS],
            "detail": one.why.detail[:REASON_LETTERS],
        }
        for one in sorted(left, key=lambda one: -len(one.names))
    )
    return tuple(rows)


def best(scores: Scores, points: Callable[[str], float | None]) -> tuple[Row, ...]:
    """Return nodes with the three highest points, one of each, and how many have as many."""
    examples = ((next(iter(names)), len(names)) for _, names in islice(scores, 3))
    return tuple(
        {"node": name, "points": points(name) or 0.0, "nodes": count} for name, count in examples
    )
