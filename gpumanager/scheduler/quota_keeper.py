"""Keeps quotas as their ConfigMap has them: listed once and then watched.

What is not understood changes nothing: the last quotas that were stay, and it is said in the log,
in a metric and as an event on the ConfigMap, where whoever wrote it will look (decision 0046).
"""

import asyncio
import logging
from typing import Any, Final

from gpumanager.cluster.api import ApiServer
from gpumanager.cluster.events import Subject
from gpumanager.cluster.notices import Notices
from gpumanager.cluster.pods import PodStore
from gpumanager.cluster.writer import Writer
from gpumanager.scheduler.quota import CONFIG_MAP_KEY, Quotas, QuotaUnreadable, read_config_map
from gpumanager.scheduler.quota_rules import Known
from gpumanager.scheduler.watching import Follower

log = logging.getLogger(__name__)

REASON: Final = "QuotaNotUnderstood"
EVENT_SECONDS: Final = 60.0


class QuotaKeeper:
    """What the ConfigMap `namespace`/`name` says. identity: ours, in events."""

    def __init__(
        self, api: ApiServer, namespace: str, name: str, *, key: str = CONFIG_MAP_KEY, identity: str
    ) -> None:
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self.follower = Follower(api, self, fields=f"metadata.name={name}")
        self._where = f"{namespace}/{name}"
        self._name = name
        self._key = key
        self._quotas: Quotas | None = None
        self._trouble = ""
        self._notices = Notices(api, identity, PodStore())
        self._wake = asyncio.Event()

    def known(self) -> Known:
        """Now. Not read: the ConfigMap was neither found nor found missing yet."""
        read = self._quotas is not None or bool(self._trouble)
        return Known(self._quotas, self._trouble, read)

    async def run(self) -> None:
        """For as long as the task lives."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.follower.run())
            group.create_task(Writer().run(self._notices.tasks, self._wake, EVENT_SECONDS))

    def put(self, item: Any) -> str:
        """The ConfigMap is so now."""
        name = str(item["metadata"]["name"])
        if name != self._name:
            return name
        try:
            self._take(read_config_map(item, self._key))
        except QuotaUnreadable as error:
            self._complain(str(error), item["metadata"])
        return name

    def remove(self, item: Any) -> None:
        """There is none any more."""
        if item["metadata"]["name"] == self._name:
            self._take({})

    def only(self, names: set[str]) -> None:
        """All there are were put."""
        if self._name not in names:
            self._take({})

    def _take(self, quotas: Quotas) -> None:
        if quotas != self._quotas:
            log.info("GPU quotas of %s: of %d namespaces", self._where, len(quotas))
        self._quotas, self._trouble = quotas, ""

    def _complain(self, trouble: str, metadata: Any) -> None:
        if trouble == self._trouble:
            return
        self._trouble = trouble
        kept = "no pod with GPUs is let in" if self._quotas is None else "the former quotas stay"
        message = f"{trouble}; {kept}"
        log.error("%s", message)
        namespace = str(metadata.get("namespace") or "")
        about = Subject("ConfigMap", self._name, str(metadata.get("uid") or ""), namespace)
        self._notices.say(None, warning=True, reason=REASON, message=message, subject=about)
        self._wake.set()
