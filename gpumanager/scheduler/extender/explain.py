"""Why a pod is on its node, or pending: the last verdicts, kept for `/explain`."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final

from gpumanager.scheduler.scoring.verdicts import Left, Scores

PODS: Final = 4096
"""How many are remembered: those of the last requests."""
REASON_LETTERS: Final = 512
"""Letters of a reason: the client may have chosen them."""


@dataclass(frozen=True, slots=True)
class RefusalReason:
    """One phrase: of how many nodes it was the reason, and what it means on one of them."""

    reason: str
    nodes: int
    example: str
    detail: str


@dataclass(frozen=True, slots=True)
class Scored:
    """A node, the points that the policy gave it, and how many nodes had the same."""

    node: str
    points: float
    nodes: int


@dataclass(frozen=True, slots=True)
class GivenGpu:
    """A GPU that a container was given. index: on its node."""

    container: str
    index: int
    uuid: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """at: seconds since the epoch. policy: by which nodes were compared. fitting: how many nodes
    would have done. best: those with the most points. bound: the node, once it is bound; points:
    which it had then. trouble: why the pod could not be placed anywhere, or bound.
    """

    uid: str
    at: float
    policy: str = ""
    nodes: int = 0
    fitting: int = 0
    reasons: tuple[RefusalReason, ...] = ()
    best: tuple[Scored, ...] = ()
    bound: str = ""
    points: float | None = None
    gpus: tuple[GivenGpu, ...] = ()
    trouble: str = ""

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self)
        return {"uid": fields.pop("uid"), "time": fields.pop("at"), **fields}


@dataclass(slots=True)
class ExplanationStore:
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

    def newest(self) -> Iterator[tuple[tuple[str, str], Explanation]]:
        """Yield namespace and name, and what is known; the pod of the last request comes first."""
        return reversed(self._pods.items())

    def __len__(self) -> int:
        return len(self._pods)


def reasons(left: Sequence[Left]) -> tuple[RefusalReason, ...]:
    """Return the commonest first."""
    found = (
        RefusalReason(
            one.why.phrase[:REASON_LETTERS],
            len(one.names),
            one.example[:REASON_LETTERS],
            one.why.detail[:REASON_LETTERS],
        )
        for one in left
    )
    return tuple(sorted(found, key=lambda one: -one.nodes))


def best(
    scores: Scores, points: Callable[[str], float | None], most: int = 3
) -> tuple[Scored, ...]:
    """Return nodes with the most points, one of each number, and how many have as many."""
    examples = ((next(iter(names)), len(names)) for _, names in islice(scores, most))
    return tuple(Scored(name, points(name) or 0.0, count) for name, count in examples)
