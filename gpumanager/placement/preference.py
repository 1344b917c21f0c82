"""What a pod, or a cluster for all its pods, says about placement: read from words. Pure.

    binpack                           one policy
    least-waste=0.7,topology=0.3      several, by weight
    topology                          links count first, then the cluster's own policy
    numa=strict                       only nodes on which that holds

Names that other GPU schedulers use mean the same here (`ALIASES`, and `link-strict` for
`topology=strict`).
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from gpumanager.placement.nearness import NEARNESS
from gpumanager.placement.policies import DEFAULT_POLICY, ROWS

STRICT: Final = "strict"
ALIASES: Final = MappingProxyType(
    {
        "least-fragmentation": "least-waste",
        "link": "topology",
        "topology-aware": "topology",
    }
)
LINKS_FIRST: Final = 10.0
"""Weight of nearness that has none: more than most differences between nodes."""
HEAVIEST: Final = 1000.0
SHOWN_WORD_LETTERS: Final = 40
"""Letters of a wrong word that are said again."""
NAMES: Final = (*ROWS, *NEARNESS)


@dataclass(frozen=True, slots=True)
class Preference:
    """nodes: policies and their weights, none where the cluster's count. near: likewise, of kinds
    of nearness. strict: those kinds that a node has to offer. gpus: the policy that chooses on the
    node for shares; empty for that of the nodes."""

    nodes: tuple[tuple[str, float], ...] = ()
    near: tuple[tuple[str, float], ...] = ()
    strict: frozenset[str] = frozenset()
    gpus: str = ""

    def over(self, default: "Preference") -> "Preference":
        """Return this, and of the cluster's what is not set here."""
        if not (self.nodes or self.near):
            return replace(default, gpus=self.gpus or default.gpus)
        return replace(self, nodes=self.nodes or default.nodes, gpus=self.gpus or default.gpus)

    @property
    def gpu_policy(self) -> str:
        """Return the policy that chooses on the node: its own, or the nodes' that counts most, the
        first of equals; empty for none."""
        most = max(self.nodes, key=lambda one: one[1], default=("", 0.0))
        return self.gpus or most[0]

    @property
    def spelled(self) -> str:
        """Return all of it, for people."""
        return f"{self}, GPUs by {self.gpus}" if self.gpus else str(self)

    def __str__(self) -> str:
        words = [_term(name, weight) for name, weight in self.nodes]
        words += [
            f"{name}={STRICT}" if name in self.strict else _term(name, weight, LINKS_FIRST)
            for name, weight in self.near
        ]
        return ",".join(words)


DEFAULT: Final = Preference(((DEFAULT_POLICY, 1.0),))


def read_preference(text: str) -> Preference:
    """Read it; raises ValueError, in words for the author. An empty text prefers nothing."""
    found: dict[str, tuple[str, float]] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, said = _split(word)
        if name in found:
            raise ValueError(f"{name} is named twice")
        weight = LINKS_FIRST if name in NEARNESS else 1.0
        if said and said != STRICT:
            weight = math.nan
            with suppress(ValueError):
                weight = float(said)
            if not 0 < weight <= HEAVIEST:
                raise ValueError(
                    f"{_cut(word)}: the weight is a number above 0, up to {HEAVIEST:g}"
                )
        found[name] = said, weight
    return Preference(
        nodes=tuple((name, by) for name, (_, by) in found.items() if name in ROWS),
        near=tuple((name, by) for name, (_, by) in found.items() if name in NEARNESS),
        strict=frozenset(name for name, (said, _) in found.items() if said == STRICT),
    )


def read_gpu_policy(text: str) -> str:
    """Read the one policy that chooses among GPUs of a node; raises ValueError."""
    name = ALIASES.get(text.strip().lower(), text.strip().lower())
    if name and name not in ROWS:
        raise ValueError(f"{_cut(text)} is not a policy for GPUs: write one of {', '.join(ROWS)}")
    return name


def _split(word: str) -> tuple[str, str]:
    """Return the name, and what stands behind it."""
    name, equals, said = (part.strip() for part in word.lower().partition("="))
    if not equals and name.endswith(f"-{STRICT}"):
        name, said = name.removesuffix(f"-{STRICT}"), STRICT
    elif equals and not said:
        raise ValueError(f"{_cut(word)} has no weight: write {name}=0.5")
    name = ALIASES.get(name, name)
    if name not in NAMES:
        raise ValueError(f"{_cut(word)} is not a policy: write one of {', '.join(NAMES)}")
    if said == STRICT and name not in NEARNESS:
        raise ValueError(f"{name} cannot be {STRICT}: only {' and '.join(NEARNESS)} can")
    return name, said


def _cut(word: str) -> str:
    return repr(word if len(word) <= SHOWN_WORD_LETTERS else f"{word[:SHOWN_WORD_LETTERS]}…")


def _term(name: str, weight: float, plain: float = 1.0) -> str:
    return name if weight == plain else f"{name}={weight:g}"
