"""Kubernetes events: recorded at once, written to the API server when it can.

An event's name follows from its text and the object it is about. So the same event is one object
however often it happens and however often the agent restarts: the second time it is counted up. A
short queue holds what is not written yet; where it is full the oldest give way. Each object has
its own limit of events per minute.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from gpumanager.ids import PodUID
from gpumanager.kube.backoff import RateLimit
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.kube.writer import Task

COMPONENT: Final = "gpu-manager"
REMEMBERED_EVENTS: Final = 1024
LONGEST_MESSAGE: Final = 1024
LONGEST_NAME: Final = 253
LONGEST_QUEUE: Final = 256
NODE_NAMESPACE: Final = "default"
AGAIN_SECONDS: Final = 60.0
"""The same event is written once in so long."""
PER_OBJECT: Final = RateLimit(burst=25, seconds=60.0)
UNKNOWN_SECONDS: Final = 60.0
"""How long an event waits for the informer to bring the pod it is about."""
WORTH_ANOTHER: Final = frozenset({401, 408, 429, *range(500, 600)})
"""Statuses after which the same may be tried again; an event that is refused otherwise is lost."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object an event is about: a pod, or the node, which has no namespace.

    uid: the one that `kubectl describe` looks for.
    """

    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """What happened to an object. reason: one word in CamelCase."""

    about: ObjectReference
    warning: bool
    reason: str
    message: str

    @property
    def name(self) -> str:
        words = (self.about.kind, self.about.uid, self.reason, self.message)
        mark = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
        return f"{self.about.name[: LONGEST_NAME - 17].rstrip('-.')}.{mark}"

    @property
    def namespace(self) -> str:
        return self.about.namespace or NODE_NAMESPACE

    def object(self, host: str, at: float) -> dict[str, Any]:
        """Return the object to create. host: the reporting node. at: seconds since the epoch."""
        stamp, about = timestamp(at), asdict(self.about)
        if not self.about.namespace:
            del about["namespace"]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "involvedObject": {"apiVersion": "v1", **about},
            "type": "Warning" if self.warning else "Normal",
            "reason": self.reason,
            "message": self.message[:LONGEST_MESSAGE],
            "source": {"component": COMPONENT, "host": host},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }


@dataclass(frozen=True, slots=True)
class _Pending:
    """An event that waits. pod: the kubelet's UID; None: it is about the host itself.

    at: seconds since the epoch. since: seconds, never back. once: not counted up where it exists
    already. about: None while the pod is not known.
    """

    pod: PodUID | None
    warning: bool
    reason: str
    message: str
    at: float
    since: float
    once: bool = False
    about: ObjectReference | None = None


class EventRecorder:
    """Takes events at once and without errors; `tasks` writes them.

    host: the node, or the process that reports. find: the object of a pod, once it is known.
    """

    def __init__(
        self,
        api: KubeClient,
        host: str,
        find: Callable[[PodUID], ObjectReference | None] = lambda _: None,
        *,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._host = host
        self._find = find
        self._elapsed = elapsed
        self._written: dict[str, float] = {}
        """When which event was, by its name."""
        self._limits: dict[str, RateLimit] = {}
        """Of which object, by its UID."""
        self._queue: deque[_Pending] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def record(
        self,
        pod: PodUID | None,
        *,
        warning: bool,
        reason: str,
        message: str,
        once: bool = False,
        about: ObjectReference | None = None,
    ) -> None:
        """about: for a pod that the informer may have lost by now."""
        if len(self._queue) >= LONGEST_QUEUE:
            self._queue.popleft()
        about = about or self._reference(pod)
        at, since = time.time(), self._elapsed()
        self._queue.append(_Pending(pod, warning, reason, message, at, since, once, about))

    def tasks(self) -> Iterator[Task]:
        """Yield one for each event with a known object."""
        for one in tuple(self._queue):
            about = one.about or self._reference(one.pod)
            if about is not None:
                what = f"event {one.reason} of {about.name}"
                yield Task(("event", one), what, partial(self._write, one, about))
            elif self._elapsed() - one.since > UNKNOWN_SECONDS:
                self._drop(one)

    def _reference(self, uid: PodUID | None) -> ObjectReference | None:
        if uid is None:
            return ObjectReference("Node", self._host, self._host)
        return self._find(uid)

    async def _write(self, one: _Pending, about: ObjectReference) -> None:
        event = KubeEvent(about, one.warning, one.reason, one.message)
        limit = self._limits.get(about.uid, PER_OBJECT).take(one.since)
        last = self._written.get(event.name, float("-inf"))
        if limit is None or one.since - last < AGAIN_SECONDS:
            self._drop(one)
            return
        path = f"/api/v1/namespaces/{event.namespace}/events"
        try:
            try:
                await self._api.create(path, event.object(self._host, one.at))
            except ApiRefused as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
                if not one.once:
                    # It exists: the same happened before, maybe before the agent's last restart.
                    place = f"{path}/{event.name}"
                    count = int((await self._api.get(place)).get("count") or 1) + 1
                    patch = {"count": count, "lastTimestamp": timestamp(one.at)}
                    await self._api.patch(place, patch)
        except ApiRefused as error:
            if error.status not in WORTH_ANOTHER:
                self._drop(one)
            raise
        self._written[event.name], self._limits[about.uid] = one.since, limit
        for memory in (self._written, self._limits):
            if len(memory) > REMEMBERED_EVENTS:
                memory.pop(next(iter(memory)))  # the first one of them
        self._drop(one)

    def _drop(self, one: _Pending) -> None:
        if one in self._queue:  # not pushed out meanwhile
            self._queue.remove(one)


def timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
