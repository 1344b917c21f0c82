"""Why a pod is where it is, or nowhere: the last verdicts, remembered for `/explain`."""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final

from gpumanager.scheduler.phrases import Unfit

PODS: Final = 4096
"""How many are remembered: those that were asked about last."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One phrase: of how many nodes it was the reason, and what it means on one of them."""

    reason: str
    nodes: int
    example: str
    detail: str


@dataclass(frozen=True, slots=True)
class Scored:
    """A node, and the points that the policy gave it."""

    node: str
    points: float


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
    reasons: tuple[Reason, ...] = ()
    best: tuple[Scored, ...] = ()
    bound: str = ""
    points: float | None = None
    gpus: tuple[GivenGpu, ...] = ()
    trouble: str = ""

    def as_json(self) -> dict[str, Any]:
        said = asdict(self)
        return {"uid": said.pop("uid"), "time": said.pop("at"), **said}


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


def reasons(unfit: Mapping[str, Unfit]) -> tuple[Reason, ...]:
    """The commonest first."""
    counts = Counter(one.phrase for one in unfit.values())
    examples: dict[str, tuple[str, str]] = {}
    for name, one in unfit.items():
        examples.setdefault(one.phrase, (name, one.detail))
    return tuple(Reason(phrase, n, *examples[phrase]) for phrase, n in counts.most_common())


def best(
    ranked: Sequence[tuple[str, int]], points: Mapping[str, float], most: int = 3
) -> tuple[Scored, ...]:
    """Of nodes with their ranks, those with the highest."""
    top = nlargest(most, ranked, key=itemgetter(1))
    return tuple(Scored(name, points[name]) for name, _ in top if name in points)
