"""Kubernetes events: what is written, how often, and under which name. Pure.

The name follows from what is said about whom. So the same event is one object however often it
happens and however often the agent restarts: the second time it is counted up, not made again. Who
says too much is cut short for each pod by itself.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gpumanager.cluster.recycling import Budget

COMPONENT: Final = "gpu-manager"
REMEMBERED: Final = 1024
LONGEST_MESSAGE: Final = 1024
LONGEST_NAME: Final = 253
NODE_NAMESPACE: Final = "default"
AGAIN_SECONDS: Final = 60.0
"""The same event is written once in so long."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom an event is about: a pod, or the node, which has no namespace.

    uid: the one `kubectl describe` looks for.
    """

    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """What happened to it. reason: one word in CamelCase."""

    subject: Subject
    warning: bool
    reason: str
    message: str

    @property
    def name(self) -> str:
        words = (self.subject.kind, self.subject.uid, self.reason, self.message)
        mark = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
        return f"{self.subject.name[: LONGEST_NAME - 17].rstrip('-.')}.{mark}"

    @property
    def namespace(self) -> str:
        return self.subject.namespace or NODE_NAMESPACE


class Sieve:
    """Lets a notice through, or not: repeated too soon, or too many about one subject."""

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget or Budget(burst=25, seconds=60.0)
        self._last: OrderedDict[str, float] = OrderedDict()
        self._budgets: OrderedDict[str, Budget] = OrderedDict()

    def lets_through(self, notice: Notice, now: float) -> bool:
        last = self._last.get(notice.name)
        if last is not None and now - last < AGAIN_SECONDS:
            return False
        return self._of(notice).take(now) is not None

    def passed(self, notice: Notice, now: float) -> None:
        """It got out."""
        _keep(self._last, notice.name, now)
        _keep(self._budgets, notice.subject.uid, self._of(notice).take(now) or self._of(notice))

    def _of(self, notice: Notice) -> Budget:
        return self._budgets.get(notice.subject.uid, self._budget)


def _keep(memory: "OrderedDict[str, Any]", key: str, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)


def event(notice: Notice, node: str, at: float) -> dict[str, Any]:
    """The object to create. at: seconds since the epoch."""
    subject, stamp = notice.subject, timestamp(at)
    about = {"kind": subject.kind, "name": subject.name, "uid": subject.uid, "apiVersion": "v1"}
    if subject.namespace:
        about["namespace"] = subject.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": notice.name, "namespace": notice.namespace},
        "involvedObject": about,
        "type": "Warning" if notice.warning else "Normal",
        "reason": notice.reason,
        "message": notice.message[:LONGEST_MESSAGE],
        "source": {"component": COMPONENT, "host": node},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def again(event_: Any, at: float) -> dict[str, Any]:
    """What changes of an event that happened once more."""
    return {"count": int(event_.get("count") or 1) + 1, "lastTimestamp": timestamp(at)}


def timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
