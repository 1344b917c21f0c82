"""Creates the ResourceClaimTemplates that pods name, and deletes those that no pod names any more.

A pod without its template stays unscheduled until the template appears. So templates are created
after their pods, and a rejected pod leaves nothing behind. All replicas do the same; the second one
finds it done.
"""

import asyncio
import logging
import time
from collections import Counter
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

log = logging.getLogger(__name__)

PODS: Final = "/api/v1/pods"
TEMPLATES: Final = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
ENDED: Final = ("Succeeded", "Failed")
PERIOD: Final = 10.0
UNUSED_SECONDS: Final = 60.0
"""A rollout's next pod often asks as the last one did."""
MISSING: Final = 404

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class TemplateUser:
    """A pod whose two lines became a claim. shape: None where its annotation is not understood.

    pod: its UID.
    """

    namespace: str
    template: str
    shape: ClaimShape | None
    pod: str = ""


class ClaimPods:
    """The pods that have such a claim and have not ended. changed: gets each new one."""

    path = PODS

    def __init__(self, changed: Callable[[TemplateUser | None], None]) -> None:
        self.users: dict[Key, TemplateUser] = {}
        self._changed = changed

    def name(self, item: Any) -> str:
        return "/".join(_key(item))

    def put(self, item: Any) -> None:
        key = _key(item)
        if (item.get("status") or {}).get("phase") in ENDED:
            self.remove(item)
            return
        known = self.users.get(key)
        if known is None or known.pod != item["metadata"]["uid"]:
            # A list may bring the next pod of the name without the deletion of the one before.
            # Example: a StatefulSet's pod, while the API server was away.
            self.users[key] = user = _user(item)
            self._changed(user)

    def remove(self, item: Any) -> None:
        if self.users.pop(_key(item), None):
            self._changed(None)

    def only(self, names: set[str]) -> None:
        self.users = {key: one for key, one in self.users.items() if "/".join(key) in names}
        self._changed(None)


class Templates:
    """Those that this module made: their UIDs."""

    path = TEMPLATES

    def __init__(self, changed: Callable[[], None]) -> None:
        self.uids: dict[Key, str] = {}
        self._changed = changed

    def name(self, item: Any) -> str:
        return "/".join(_key(item))

    def put(self, item: Any) -> None:
        self.uids[_key(item)] = str(item["metadata"]["uid"])
        self._changed()

    def remove(self, item: Any) -> None:
        self.uids.pop(_key(item), None)
        self._changed()

    def only(self, names: set[str]) -> None:
        self.uids = {key: uid for key, uid in self.uids.items() if "/".join(key) in names}
        self._changed()


class TemplateKeeper:
    """Follows pods and templates, and writes the difference. admitted: as `ClaimPods.changed`."""

    def __init__(
        self,
        api: KubeClient,
        *,
        admitted: Callable[[TemplateUser], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        unused_seconds: float = UNUSED_SECONDS,
    ) -> None:
        self._api = api
        self._admitted = admitted
        self._clock = clock
        self._unused_seconds = unused_seconds
        self._unused: dict[Key, float] = {}
        """Since when nobody names it."""
        self._wake = asyncio.Event()
        self._pods = ClaimPods(self._pod_changed)
        self._templates = Templates(self._wake.set)
        self._followed = (
            Informer(api, self._pods, labels=LABEL_CLAIM_TEMPLATE),
            Informer(api, self._templates, labels=f"{MANAGED_BY_LABEL}={MANAGED_BY_US}"),
        )
        self._writer = Writer(clock=clock)

    @property
    def current(self) -> bool:
        """Pods and templates are known as they are now."""
        return all(one.current for one in self._followed)

    def users(self) -> Iterator[TemplateUser]:
        """Iterate over the users of all namespaces."""
        return iter(tuple(self._pods.users.values()))

    async def run(self) -> None:
        """Follow and write, for as long as the task lives."""
        async with asyncio.TaskGroup() as group:
            for one in self._followed:
                group.create_task(one.run())
            group.create_task(self._writer.run(self.tasks, self._wake, PERIOD))

    def tasks(self) -> Iterator[Task]:
        """Yield what is to be written now: nothing before both lists were read to their ends."""
        if not all(one.listed.is_set() for one in self._followed):
            return
        named = {(one.namespace, one.template) for one in self._pods.users.values()}
        for one in self._pods.users.values():
            key, shape = (one.namespace, one.template), one.shape
            if shape is not None and key not in self._templates.uids:
                body = shape.template(key[0])
                write = partial(self._unless, CONFLICT, self._api.create, _path(key[0]), body)
                yield Task(("create", key), f"template {'/'.join(key)}", write)
        now = self._clock()
        unused = [key for key in self._templates.uids if key not in named]
        self._unused = {key: self._unused.get(key, now) for key in unused}
        for key, since in self._unused.items():
            if now - since >= self._unused_seconds:
                uid = self._templates.uids[key]
                path, options = f"{_path(key[0])}/{key[1]}", {"preconditions": {"uid": uid}}
                write = partial(self._unless, MISSING, self._api.delete, path, options)
                yield Task(("delete", key, uid), f"template {'/'.join(key)}", write)

    def counts(self) -> Counter[str]:
        """Return the counts for metrics."""
        return Counter(templates=len(self._templates.uids), pods=len(self._pods.users))

    def _pod_changed(self, user: TemplateUser | None) -> None:
        if user is not None:
            self._admitted(user)
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


def _key(item: Any) -> Key:
    return str(item["metadata"]["namespace"]), str(item["metadata"]["name"])


def _user(item: Any) -> TemplateUser:
    metadata = item["metadata"]
    template = str(metadata["labels"][LABEL_CLAIM_TEMPLATE])
    text = (metadata.get("annotations") or {}).get(ANNOTATION_CLAIM, "")
    shape: ClaimShape | None
    try:
        shape = read_shape(text)
    except ValueError as error:
        shape = None
        log.warning("pod %s: annotation %s: %s", "/".join(_key(item)), ANNOTATION_CLAIM, error)
    if shape is not None and shape.name != template:
        log.warning(
            "pod %s: label %s is not the template name for annotation %s; creating no template",
            "/".join(_key(item)),
            LABEL_CLAIM_TEMPLATE,
            ANNOTATION_CLAIM,
        )
        shape = None
    return TemplateUser(str(metadata["namespace"]), template, shape, str(metadata["uid"]))
