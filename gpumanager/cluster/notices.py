"""What happened, on its way to becoming Kubernetes events: a short queue whose oldest give way."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gpumanager.cluster.api import ApiRefused, ApiServer
from gpumanager.cluster.events import Notice, Sieve, Subject, again, event
from gpumanager.cluster.pods import ClusterPod, PodStore
from gpumanager.cluster.writer import CONFLICT, Task
from gpumanager.kubelet.pods import PodUID

LONGEST: Final = 256
UNKNOWN_SECONDS: Final = 60.0
"""How long a notice waits for the watch to bring the pod it is about."""
WORTH_ANOTHER: Final = frozenset({401, 408, 429, *range(500, 600)})
"""Statuses after which the same may be tried again; a notice that is refused otherwise is lost."""


@dataclass(frozen=True, slots=True)
class Said:
    """A notice that waits. pod: the kubelet's UID; None: it is about the node.

    at: seconds since the epoch. since: seconds, never back. once: not counted up where it exists
    already. subject: None while the pod is not known.
    """

    pod: PodUID | None
    warning: bool
    reason: str
    message: str
    at: float
    since: float
    once: bool = False
    subject: Subject | None = None


def pod_subject(pod: ClusterPod) -> Subject:
    """For a static pod the kubelet's UID, by which `kubectl describe` looks for its events."""
    return Subject("Pod", pod.view.name, pod.view.uid, pod.view.namespace)


class Notices:
    """Takes what happened at once and for ever, gives it to the API server when it can."""

    def __init__(
        self,
        api: ApiServer,
        node: str,
        pods: PodStore,
        *,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
        sieve: Sieve | None = None,
    ) -> None:
        self.lost = 0
        self._api = api
        self._node = node
        self._pods = pods
        self._clock = clock
        self._elapsed = elapsed
        self._sieve = sieve or Sieve()
        self._queue: deque[Said] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def say(
        self,
        pod: PodUID | None,
        *,
        warning: bool,
        reason: str,
        message: str,
        once: bool = False,
        subject: Subject | None = None,
    ) -> None:
        """subject: for a pod that the watch may have lost by now."""
        if len(self._queue) >= LONGEST:
            self._queue.popleft()
            self.lost += 1
        subject = subject or self._subject(pod)
        at, since = self._clock(), self._elapsed()
        said = Said(pod, warning, reason, message, at, since, once, subject)
        self._queue.append(said)

    def tasks(self) -> Iterator[Task]:
        """One for each notice whose subject is known; what is said too often is let go."""
        for said in tuple(self._queue):
            subject = said.subject or self._subject(said.pod)
            if subject is not None:
                what = f"event {said.reason} of {subject.name}"
                yield Task(("event", said), what, partial(self._write, said, subject))
            elif self._elapsed() - said.since > UNKNOWN_SECONDS:
                self._let_go(said)

    def _subject(self, uid: PodUID | None) -> Subject | None:
        if uid is None:
            return Subject("Node", self._node, self._node)
        pod = self._pods.get(uid)
        return None if pod is None else pod_subject(pod)

    async def _write(self, said: Said, subject: Subject) -> None:
        notice = Notice(subject, said.warning, said.reason, said.message)
        if not self._sieve.lets_through(notice, said.since):
            self._let_go(said)
            return
        try:
            await self._create(notice, said)
        except ApiRefused as error:
            if error.status not in WORTH_ANOTHER:
                self._let_go(said)
            raise
        self._sieve.passed(notice, said.since)
        if said in self._queue:  # not pushed out meanwhile
            self._queue.remove(said)

    async def _create(self, notice: Notice, said: Said) -> None:
        path = f"/api/v1/namespaces/{notice.namespace}/events"
        made: Any = event(notice, self._node, said.at)
        try:
            await self._api.create(path, made)
        except ApiRefused as error:
            if error.status != CONFLICT:
                raise
            if not said.once:
                one = f"{path}/{notice.name}"
                await self._api.patch(one, again(await self._api.get(one), said.at))

    def _let_go(self, said: Said) -> None:
        if said in self._queue:
            self._queue.remove(said)
            self.lost += 1
