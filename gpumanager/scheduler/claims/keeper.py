"""Creates the ResourceClaimTemplates that pods name, and deletes those that no pod names any more.

A pod without its template stays unscheduled until the template appears. So templates are created
after their pods, and a rejected pod leaves nothing behind. All replicas do the same; the second one
finds it done.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.kube.informer import Informer
from gpumanager.kube.writer import CONFLICT, Task, Writer
from gpumanager.names import (
    ANNOTATION_CLAIM,
    LABEL_CLAIM_TEMPLATE,
    MANAGED_BY_LABEL,
    MANAGED_BY_US,
)
from gpumanager.scheduler.claims.template import ClaimShape, read_shape
from gpumanager.scheduler.watching import ObjectStore

log = logging.getLogger(__name__)

PODS: Final = "/api/v1/pods"
TEMPLATES: Final = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
ENDED: Final = ("Succeeded", "Failed")
PERIOD: Final = 10.0
UNUSED_SECONDS: Final = 60.0
"""A rollout's next pod often asks as the last one did."""
MISSING: Final = 404


@dataclass(frozen=True, slots=True)
class TemplateUser:
    """A pod whose two lines became a claim. shape: None where there is `trouble` with its
    annotation.

    pod: its UID.
    """

    namespace: str
    template: str
    shape: ClaimShape | None
    pod: str = ""
    trouble: str = ""


class TemplateKeeper:
    """Follows pods and templates, and writes the difference. admitted: gets each new pod."""

    def __init__(
        self,
        api: KubeClient,
        *,
        admitted: Callable[[TemplateUser], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._admitted = admitted
        self._clock = clock
        self._unused: dict[str, float] = {}
        """Since when nobody names it."""
        self._wake = asyncio.Event()
        self._pods = ObjectStore(PODS, read_user, self._pod_changed)
        self._templates = ObjectStore(
            TEMPLATES, lambda item: str(item["metadata"]["uid"]), lambda *_: self._wake.set()
        )
        self._followed = (
            Informer(api, self._pods, labels=LABEL_CLAIM_TEMPLATE),
            Informer(api, self._templates, labels=f"{MANAGED_BY_LABEL}={MANAGED_BY_US}"),
        )
        self._writer = Writer(clock=clock)

    def users(self) -> Iterator[TemplateUser]:
        """Iterate over the users of all namespaces."""
        return iter(tuple(self._pods.known.values()))

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
        uids, users = self._templates.known, self._pods.known.values()
        for one in users:
            key, shape = f"{one.namespace}/{one.template}", one.shape
            if shape is not None and key not in uids:
                path, body = _path(one.namespace), shape.template(one.namespace)
                write = partial(self._unless, CONFLICT, self._api.create, path, body)
                yield Task(("create", key), f"template {key}", write)
        now, named = self._clock(), {f"{one.namespace}/{one.template}" for one in users}
        self._unused = {key: self._unused.get(key, now) for key in uids.keys() - named}
        for key, since in self._unused.items():
            if now - since >= UNUSED_SECONDS:
                namespace, _, name = key.partition("/")
                path, options = _path(namespace) + f"/{name}", {"preconditions": {"uid": uids[key]}}
                write = partial(self._unless, MISSING, self._api.delete, path, options)
                yield Task(("delete", key, uids[key]), f"template {key}", write)

    def _pod_changed(
        self, name: str, before: TemplateUser | None, after: TemplateUser | None
    ) -> None:
        # A list may bring the next pod of the name without the deletion of the one before.
        # Example: a StatefulSet's pod, while the API server was away.
        if (before and before.pod) == (after and after.pod):
            return
        if after:
            if after.trouble:
                log.warning("pod %s: %s", name, after.trouble)
            self._admitted(after)
        self._wake.set()

    async def _unless(self, done: int, write: Any, path: str, body: Any) -> None:
        """Write, unless it is refused with `done`: another replica was first."""
        try:
            await write(path, body)
        except ApiRefused as error:
            if error.status != done:
                raise


def _path(namespace: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"


def read_user(item: Any) -> TemplateUser | None:
    """Return what a pod names; None for one that has ended."""
    if (item.get("status") or {}).get("phase") in ENDED:
        return None
    metadata = item["metadata"]
    template = str(metadata["labels"][LABEL_CLAIM_TEMPLATE])
    text = (metadata.get("annotations") or {}).get(ANNOTATION_CLAIM, "")
    shape, trouble = None, ""
    try:
        shape = read_shape(text)
    except ValueError as error:
        trouble = f"annotation {ANNOTATION_CLAIM}: {error}"
    if shape is not None and shape.name != template:
        trouble = (
            f"label {LABEL_CLAIM_TEMPLATE} is not the template name for annotation "
            f"{ANNOTATION_CLAIM}; creating no template"
        )
        shape = None
    return TemplateUser(str(metadata["namespace"]), template, shape, str(metadata["uid"]), trouble)
