"""What the webhook serves: the API server's reviews, probes and metrics."""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from aiohttp import web

from gpumanager.scheduler.claims.convert import claim_before, convert, shape_of
from gpumanager.scheduler.claims.template import ClaimShape
from gpumanager.scheduler.claims.validate import validate_claim
from gpumanager.scheduler.http.server import (
    JSON,
    Bounds,
    HttpRefusal,
    Page,
    Routes,
    metrics,
    page_of,
    plain,
)
from gpumanager.scheduler.quota.limits import Quotas, could_never
from gpumanager.scheduler.webhook.asks import is_mirror, read_asks
from gpumanager.scheduler.webhook.metrics import MALFORMED, WebhookMetrics, outcome_of
from gpumanager.scheduler.webhook.mutate import mutate, mutate_to_claims
from gpumanager.scheduler.webhook.nodes import NodeKind
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.review import (
    Decision,
    Review,
    ReviewUnreadable,
    decided,
    encoded,
    read_review,
)
from gpumanager.scheduler.webhook.validate import validate

log = logging.getLogger(__name__)

MUTATE: Final = "/mutate"
CLAIMS: Final = "/mutate/claims"
"""For pods whose two lines are to become a claim: the webhook's configuration says which."""
VALIDATE: Final = "/validate"
VALIDATE_CLAIMS: Final = "/validate/claims"
"""For claims, their templates, and classes of devices."""
BOUNDS: Final = Bounds(
    body=4 << 20, bodies=32 << 20, connections=128, head_seconds=5.0, answer_seconds=5.0
)
"""The API server takes objects of 3 MiB itself, and wraps them."""


class ClaimQuota(Protocol):
    """Of `gpumanager.scheduler.claims.quota.ClaimQuotas`."""

    def refusals(self, namespace: str, asked: ClaimShape) -> tuple[str, ...]:
        """Return why a namespace may not have this claim too; empty where it may."""

    def expect(self, namespace: str, asked: ClaimShape) -> None:
        """Count the claim of a pod that was let in."""

    def withdraw(self, namespace: str, asked: ClaimShape) -> None:
        """Count no longer the claim of a pod that was changed before it was made."""


class Webhook:
    """Answers by `policy`. nodes, quotas: asked anew for each pod; empty where nothing is known.

    trouble: what is wrong with background tasks; empty where nothing is.
    claims: /mutate/claims is served. quota: asked for each pod whose two lines become a claim.
    """

    def __init__(
        self,
        policy: AdmissionPolicy,
        nodes: Callable[[], Collection[NodeKind]] = tuple,
        quotas: Callable[[], Quotas] = dict,
        metrics: WebhookMetrics | None = None,
        version: str = "",
        *,
        trouble: Callable[[], str] = str,
        quota: ClaimQuota | None = None,
        claims: bool = False,
    ) -> None:
        self._policy = policy
        self._nodes = nodes
        self._quotas = quotas
        self._metrics = metrics or WebhookMetrics()
        self._version = version
        self._trouble = trouble
        self._claim_quota = quota
        self._claims = claims
        self.leaving = False
        """Fail `/readyz` from now on, so that requests are routed to other replicas."""

    def routes(self) -> Routes:
        to_claims = self._reviews("claims", self.changed_to_claims)
        claims: Routes = {CLAIMS: {"POST": to_claims}} if self._claims else {}
        return {
            **claims,
            MUTATE: {"POST": self._reviews("mutate", self.changed)},
            VALIDATE: {"POST": self._reviews("validate", self.judged)},
            VALIDATE_CLAIMS: {"POST": self._reviews("validate-claims", self.judged_claim, "claim")},
            "/healthz": {"GET": page_of(self._healthz)},
            "/readyz": {"GET": page_of(self._readyz)},
            "/metrics": {"GET": page_of(lambda: metrics(self._metrics.text()))},
            "/version": {"GET": page_of(lambda: plain(self._version))},
        }

    def changed(self, review: Review) -> Decision:
        """Return how a new pod is to be changed."""
        steps = mutate(review.object, self._policy, self._nodes())
        notes = [step.note for step in steps if step.note]
        if steps:
            log.info("pod %s: %s", name_of(review), ", ".join(step.path for step in steps))
        return Decision(warnings=notes, patch=steps)

    def judged(self, review: Review) -> Decision:
        """Return whether a new pod is let in."""
        never = partial(could_never, self._quotas(), review.namespace)
        verdict = validate(review.object, self._policy, self._nodes(), never)
        if verdict.errors:
            log.info("pod %s is refused: %s", name_of(review), "; ".join(verdict.errors))
        return Decision(verdict.errors, verdict.warnings)

    def judged_claim(self, review: Review) -> Decision:
        """Return whether a claim, a template or a class is let in."""
        verdict = validate_claim(review.kind, review.object, self._policy, self._nodes())
        if verdict.errors:
            text = "; ".join(verdict.errors)
            log.info("%s %s is refused: %s", review.kind, name_of(review), text)
        return Decision(verdict.errors, verdict.warnings)

    def changed_to_claims(self, review: Review) -> Decision:
        """Do what `changed` and `judged` do: after it, the pod asks for no GPU."""
        pod, steps = mutate_to_claims(review.object, self._policy, self._nodes())
        asks = read_asks(pod)
        if not asks or is_mirror(pod):
            return Decision()
        verdict = validate(pod, self._policy, self._nodes())
        try:
            before = claim_before(pod)
        except ValueError as error:
            verdict = replace(verdict, errors=(*verdict.errors, str(error)))
        quota = self._claim_quota
        if quota and not verdict.errors:
            shape, _ = shape_of(pod, asks, tiers=self._policy.claim_tiers)
            if before and not review.dry_run:
                quota.withdraw(review.namespace, before)
            verdict = replace(verdict, errors=quota.refusals(review.namespace, shape))
            if not verdict.errors and not review.dry_run:
                quota.expect(review.namespace, shape)
        if verdict.errors:
            log.info("pod %s is refused: %s", name_of(review), "; ".join(verdict.errors))
            return Decision(verdict.errors, verdict.warnings)
        # First what replaces all annotations, then what removes some of them.
        steps = (*convert(review.object, asks, tiers=self._policy.claim_tiers), *steps)
        log.info("pod %s: %s", name_of(review), ", ".join(step.path for step in steps))
        notes = [step.note for step in steps if step.note]
        return Decision(warnings=(*verdict.warnings, *notes), patch=steps)

    def _reviews(
        self, endpoint: str, decide: Callable[[Review], Decision], subject: str = "pod"
    ) -> Page:
        """Return the page that answers reviews by `decide`."""

        async def answer(request: web.BaseRequest, body: bytes) -> web.Response:
            if request.content_type != JSON:
                raise HttpRefusal(415, f"send {JSON}")
            began, outcome = time.perf_counter(), MALFORMED
            fail_open = self._policy.fail_open
            try:
                review = read_review(body)
                decision = decided(review, decide, fail_open=fail_open, subject=subject)
                outcome = outcome_of(decision)
            except ReviewUnreadable as error:
                raise HttpRefusal(400, str(error)) from None
            finally:
                self._metrics.took(endpoint, outcome, time.perf_counter() - began)
            return web.Response(body=encoded(review, decision), headers={"Content-Type": JSON})

        return answer

    def _healthz(self) -> web.Response:
        """Answer; there is a certificate, or no client could have sent the request."""
        if trouble := self._trouble():
            raise HttpRefusal(503, trouble)
        return plain("ok")

    def _readyz(self) -> web.Response:
        if self.leaving:
            raise HttpRefusal(503, "about to stop")
        return plain("ready")


def name_of(review: Review) -> str:
    """Return its name for the log: a controller's pod has none yet, a class has no namespace."""
    metadata = review.object.get("metadata") or {}
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return f"{review.namespace}/{name}"[:300]
