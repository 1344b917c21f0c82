"""Creates the ResourceClaimTemplates that pods name, and deletes those that no pod names any more.

A pod without its template stays unscheduled until the template appears. So templates are created
after their pods, and a rejected pod leaves nothing behind. All replicas do the same; the second one
finds it done.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.kube.informer import Informer, ObjectStore
from gpumanager.kube.writer import Task, Writer
from gpumanager.names import (
    ANNOTATION_CLAIM,
    LABEL_CLAIM_TEMPLATE,
    MANAGED_BY_LABEL,
    MANAGED_BY_US,
)
from gpumanager.scheduler.claims.template import ClaimShape, read_shape

TEMPLATES: Final = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
TEMPLATES_OF: Final = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates"
ENDED: Final = ("Succeeded", "Failed")
PERIOD: Final = 10.0
UNUSED_SECONDS: Final = 60.0
"""A rollout's next pod often asks as the last one did."""


@dataclass(frozen=True, slots=True)
class TemplateUser:
    """A pod whose two lines became a claim. pod: its UID."""

    namespace: str
    shape: ClaimShape
    pod: str


class TemplateKeeper:
    """Follows pods and templates, and writes the difference. admitted: gets the namespace and the
    claim of each new pod."""

    def __init__(
        self,
        api: KubeClient,
        *,
        admitted: Callable[[str, ClaimShape], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._admitted = admitted
        self._clock = clock
        self._unused: dict[str, float] = {}
        """Since when nobody names it."""
        self._wake = asyncio.Event()
        pods = ObjectStore("/api/v1/pods", read_user, self._pod_changed)
        templates = ObjectStore(
            TEMPLATES, lambda item: str(item["metadata"]["uid"]), lambda *_: self._wake.set()
        )
        self._users: dict[str, TemplateUser] = pods.known
        self._uids: dict[str, str] = templates.known
        self._followed = (
            Informer(api, pods, labels=LABEL_CLAIM_TEMPLATE),
            Informer(api, templates, labels=f"{MANAGED_BY_LABEL}={MANAGED_BY_US}"),
        )
        self._writer = Writer(clock=clock)

    def users(self) -> tuple[TemplateUser, ...]:
        """Return the users of all namespaces."""
        return tuple(self._users.values())

    async def run(self) -> None:
        """Follow and write, for as long as the task lives."""
        async with asyncio.TaskGroup() as group:
            for one in self._followed:
                group.create_task(one.run())
            group.create_task(self._writer.run(self.tasks, self._wake, PERIOD))
            for one in self._followed:
                await one.listed.wait()
            self._wake.set()

    def tasks(self) -> Iterator[Task]:
        """Yield what is to be written now: nothing before both lists were read to their ends."""
        if not all(one.listed.is_set() for one in self._followed):
            return
        named = {f"{one.namespace}/{one.shape.name}": one for one in self._users.values()}
        for key, one in named.items():
            if key not in self._uids:
                path, body = TEMPLATES_OF.format(one.namespace), one.shape.template(one.namespace)
                write = partial(self._unless, HTTPStatus.CONFLICT, self._api.create, path, body)
                yield Task(("create", key), f"template {key}", write)
        now = self._clock()
        self._unused = {key: self._unused.get(key, now) for key in self._uids.keys() - named}
        for key, since in self._unused.items():
            if now - since >= UNUSED_SECONDS:
                namespace, _, name = key.partition("/")
                path, uid = f"{TEMPLATES_OF.format(namespace)}/{name}", self._uids[key]
                options = {"preconditions": {"uid": uid}}
                write = partial(self._unless, HTTPStatus.NOT_FOUND, self._api.delete, path, options)
                yield Task(("delete", key, uid), f"template {key}", write)

    def _pod_changed(
        self, _name: str, before: TemplateUser | None, after: TemplateUser | None
    ) -> None:
        # A list may bring the next pod of the name without the deletion of the one before.
        # Example: a StatefulSet's pod, while the API server was away.
        if (before and before.pod) != (after and after.pod):
            if after:
                self._admitted(after.namespace, after.shape)
            self._wake.set()

    async def _unless(self, done: int, write: Any, path: str, body: Any) -> None:
        """Write, unless it is refused with `done`: another replica was first."""
        try:
            await write(path, body)
        except ApiRefused as error:
            if error.status != done:
                raise


def read_user(item: Any) -> TemplateUser | None:
    """Return what a pod names; None for one that has ended. Raises ValueError where its annotation
    is not the webhook's."""
    if (item.get("status") or {}).get("phase") in ENDED:
        return None
    metadata = item["metadata"]
    shape = read_shape((metadata.get("annotations") or {}).get(ANNOTATION_CLAIM, ""))
    if shape.name != metadata["labels"][LABEL_CLAIM_TEMPLATE]:
        raise ValueError(f"label {LABEL_CLAIM_TEMPLATE} is not of annotation {ANNOTATION_CLAIM}")
    return TemplateUser(str(metadata["namespace"]), shape, str(metadata["uid"]))
