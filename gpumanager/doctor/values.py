"""What a doctor says of a node.

A finding is one line of the answer: what was found, whether that is well, and what to do where it
is not. It is wrong only where pods would get no GPU, or not what they were granted; what merely
makes something worse is a note.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from inspect import signature
from pathlib import Path
from typing import Any

from gpumanager.doctor.question import Unseen


class Verdict(Enum):
    """WELL: as it should be. NOTE: it works, with something less. WRONG: pods will not get GPUs,
    or not what they were granted.
    """

    WELL = "well"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """advice: what to do; empty where nothing is. part: empty for that of its check."""

    verdict: Verdict
    found: str
    advice: str = ""
    part: str = ""


def well(found: str, part: str = "") -> Finding:
    return Finding(Verdict.WELL, found, part=part)


def note(found: str, advice: str, part: str = "") -> Finding:
    return Finding(Verdict.NOTE, found, advice, part)


def wrong(found: str, advice: str, part: str = "") -> Finding:
    return Finding(Verdict.WRONG, found, advice, part)


Findings = Iterator[Finding]
Say = Callable[[str, str], Finding]


@dataclass(frozen=True, slots=True)
class Check:
    """What to make of inputs, by their names.

    unseen, advice: of the finding where the first of them could not be looked at. after: inputs of
    other checks, which say enough where they could not be looked at.
    """

    part: str
    names: tuple[str, ...]
    judge: Callable[..., Iterable[Finding]]
    unseen: Say | None = None
    advice: str = ""
    after: tuple[str, ...] = ()

    def __call__(self, inputs: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings; none where the node has no such input."""
        if not inputs.keys() >= {*self.names} or any(
            isinstance(inputs[name], Unseen) for name in self.after
        ):
            return
        first, *rest = (inputs[name] for name in self.names)
        if self.unseen and isinstance(first, Unseen):
            yield replace(self.unseen(first.cause, self.advice), part=self.part)
            return
        for found in self.judge(first, *rest):
            yield found if found.part else replace(found, part=self.part)


def check(
    part: str, unseen: Say | None = None, advice: str = "", after: tuple[str, ...] = ()
) -> Callable[[Callable[..., Iterable[Finding]]], Check]:
    """Make a function a check; its parameters are the names of its inputs."""
    return lambda judge: Check(part, (*signature(judge).parameters,), judge, unseen, advice, after)


def row(
    part: str,
    name: str,
    good: str,
    *,
    none: str = "",
    bad: tuple[Say, str, str] | None = None,
    unseen: tuple[Say, str] | None = None,
) -> Check:
    """Check one input: bad is False, and a list that is not empty. {}: the input, in sentences.

    good: what is found; empty where nothing is to be said. none: of None. bad: what is found, and
    what to do. unseen: what to do; None where another row says it.
    """

    def judge(value: Any) -> Iterator[Finding]:
        listed = isinstance(value, list | tuple)
        text = ", ".join(map(str, value)) if listed else value
        if bad and (value is False or (listed and value)):
            say, found, advice = bad
            yield say(found.format(text), advice)
        elif good:
            yield well(none if value is None else good.format(text))

    say, advice = unseen or (None, "")
    return Check(part, (name,), judge, say, advice, () if unseen else (name,))


class ListeningSocket(Enum):
    """What listens at a socket's path. DEAD: the file is there and nothing listens."""

    ABSENT = "absent"
    DEAD = "dead"
    DENIED = "denied"
    LISTENS = "listens"


@dataclass(frozen=True, slots=True)
class InstalledDriver:
    """The driver's libraries on the host's disk."""

    version: str
    library: Path
    warnings: tuple[str, ...] = ()
