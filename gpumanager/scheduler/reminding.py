"""Makes kube-scheduler look again at pods that would fit by now: writes that on them."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable, Object
from gpumanager.kube.pod import PodView
from gpumanager.names import ANNOTATION_ROOM_FOUND
from gpumanager.scheduler.reminders import Reminders

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
PATCH_SECONDS: Final = 5.0
GONE: Final = frozenset({404, 409})
"""The pod is not there any more, or is another by now."""


class Api(Protocol):
    """Raises ApiRefused, ApiUnavailable."""

    async def patch(self, path: str, body: Object) -> Any: ...


class Reminding:
    """ours: whether it is us who are asked, and know enough to answer."""

    def __init__(self, api: Api, reminders: Reminders, ours: Callable[[], bool]) -> None:
        self._api = api
        self._reminders = reminders
        self._ours = ours

    async def run(self) -> None:
        """For as long as the task lives."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Remind of those that are due."""
        if not self._ours():
            self._reminders.clear()
            return
        for pod in self._reminders.due():
            await self._remind(pod)

    async def _remind(self, pod: PodView) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        note = {ANNOTATION_ROOM_FOUND: datetime.now(UTC).isoformat(timespec="seconds")}
        try:
            async with asyncio.timeout(PATCH_SECONDS):
                await self._api.patch(path, {"metadata": {"uid": pod.uid, "annotations": note}})
            log.info("%s/%s: there is room for it now", pod.namespace, pod.name)
        except ApiRefused as error:
            if error.status in GONE:
                self._reminders.forget(pod.uid)
            log.debug("%s: %s", path, error)
        except (ApiUnavailable, TimeoutError, *NOT_UNDERSTOOD) as error:
            log.debug("%s: %r", path, error)
