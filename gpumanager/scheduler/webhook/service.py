"""What the webhook serves: two questions of the API server, and how it is itself."""

import logging
from collections.abc import Callable, Collection
from typing import Final

from gpumanager.scheduler.webhook.http import Routes
from gpumanager.scheduler.webhook.http_words import JSON, Answer, Call
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

    async def _mutate(self, call: Call) -> Answer:
        return self._answer(call, self.changed)

    async def _validate(self, call: Call) -> Answer:
        return self._answer(call, self.judged)

    def _answer(self, call: Call, decide: Callable[[Review], Decision]) -> Answer:
        kind = call.fields.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            return Answer.say(415, f"send {JSON}")
        try:
            review = read_review(call.body)
        except ReviewUnreadable as error:
            return Answer.say(400, str(error))
        body = answer_to(review, decide, fail_open=self._policy.fail_open)
        return Answer(body=body, kind=JSON)

    async def _well(self, _call: Call) -> Answer:
        """There is a certificate, or nobody could ask."""
        return Answer.say(200)

    async def _ready(self, _call: Call) -> Answer:
        return Answer.say(503, "about to stop") if self.leaving else Answer.say(200)

    async def _tell_version(self, _call: Call) -> Answer:
        return Answer.say(200, self._version)


def name_of(review: Review) -> str:
    """For the log: a pod of a controller has no name yet."""
    metadata = review.object.get("metadata") or {}
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return f"{review.namespace}/{name}"[:300]
