"""What the webhook serves: two questions of the API server, and how it is itself."""

import logging
from collections.abc import Callable, Collection
from typing import Final

from aiohttp import web

from gpumanager.scheduler.http.bounds import Bounds
from gpumanager.scheduler.http.server import JSON, Refused, Routes, plain
from gpumanager.scheduler.webhook.mutate import mutate
from gpumanager.scheduler.webhook.nodes import NodeKind
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.review import (
    Decision,
    Review,
    ReviewUnreadable,
    answer_to,
    read_review,
)
from gpumanager.scheduler.webhook.validate import validate

log = logging.getLogger(__name__)

MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"
BOUNDS: Final = Bounds(
    body=4 << 20, bodies=32 << 20, connections=128, head_seconds=5.0, answer_seconds=5.0
)
"""The API server takes objects of 3 MiB itself, and wraps them."""


class Webhook:
    """Answers by `policy`. nodes: asked anew for each pod; empty where nothing is known."""

    def __init__(
        self,
        policy: AdmissionPolicy,
        nodes: Callable[[], Collection[NodeKind]] = tuple,
        version: str = "",
    ) -> None:
        self._policy = policy
        self._nodes = nodes
        self._version = version
        self.leaving = False
        """Others are to be asked from now on: who routes requests is told so by `/readyz`."""

    def routes(self) -> Routes:
        return {
            MUTATE: {"POST": self._mutate},
            VALIDATE: {"POST": self._validate},
            "/healthz": {"GET": self._well},
            "/readyz": {"GET": self._ready},
            "/version": {"GET": self._tell_version},
        }

    def changed(self, review: Review) -> Decision:
        """How a new pod is to be changed."""
        steps = mutate(review.object, self._policy, self._nodes())
        notes = [step.note for step in steps if step.note]
        if steps:
            log.info("pod %s: %s", name_of(review), ", ".join(step.path for step in steps))
        return Decision(warnings=notes, patch=steps)

    def judged(self, review: Review) -> Decision:
        """Whether a new pod is let in."""
        verdict = validate(review.object, self._policy, self._nodes())
        if verdict.errors:
            log.info("pod %s is refused: %s", name_of(review), "; ".join(verdict.errors))
        return Decision(verdict.errors, verdict.warnings)

    async def _mutate(self, request: web.BaseRequest, body: bytes) -> web.Response:
        return self._answer(request, body, self.changed)

    async def _validate(self, request: web.BaseRequest, body: bytes) -> web.Response:
        return self._answer(request, body, self.judged)

    def _answer(
        self, request: web.BaseRequest, body: bytes, decide: Callable[[Review], Decision]
    ) -> web.Response:
        if request.content_type != JSON:
            raise Refused(415, f"send {JSON}")
        try:
            review = read_review(body)
        except ReviewUnreadable as error:
            raise Refused(400, str(error)) from None
        answer = answer_to(review, decide, fail_open=self._policy.fail_open)
        return web.Response(body=answer, headers={"Content-Type": JSON})

    async def _well(self, _request: web.BaseRequest, _body: bytes) -> web.Response:
        """There is a certificate, or nobody could ask."""
        return plain("ok")

    async def _ready(self, _request: web.BaseRequest, _body: bytes) -> web.Response:
        if self.leaving:
            raise Refused(503, "about to stop")
        return plain("ready")

    async def _tell_version(self, _request: web.BaseRequest, _body: bytes) -> web.Response:
        return plain(self._version)


def name_of(review: Review) -> str:
    """For the log: a pod of a controller has no name yet."""
    metadata = review.object.get("metadata") or {}
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return f"{review.namespace}/{name}"[:300]
