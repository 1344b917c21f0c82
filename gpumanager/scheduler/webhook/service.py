"""What the webhook serves: the API server's reviews, probes and metrics."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from aiohttp import web

from gpumanager.scheduler.claims.quota import ClaimQuotas
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
from gpumanager.scheduler.metrics import MALFORMED, WebhookMetrics
from gpumanager.scheduler.quota.limits import Quotas, why_never_fits
from gpumanager.scheduler.webhook.asks import RESOURCES, read_asks
from gpumanager.scheduler.webhook.mutate import convert, earlier_claim, mutate, shape_of
from gpumanager.scheduler.webhook.nodes import NodeKind
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.review import (
    Decision,
    Review,
    ReviewUnreadable,
    decide_safely,
    differences,
    encode_response,
    read_review,
)
from gpumanager.scheduler.webhook.validate import validate
from gpumanager.scheduler.webhook.validate_claim import validate_claim

log = logging.getLogger(__name__)

MUTATE: Final = "/mutate"
MUTATE_TO_CLAIMS: Final = "/mutate/claims"
"""For pods whose two resources become a claim: the MutatingWebhookConfiguration says which."""
VALIDATE: Final = "/validate"
VALIDATE_CLAIMS: Final = "/validate/claims"
"""For ResourceClaims, ResourceClaimTemplates and DeviceClasses."""
BOUNDS: Final = Bounds(
    body=4 << 20, bodies=32 << 20, connections=128, head_seconds=5.0, answer_seconds=5.0
)
"""body: the API server takes objects of up to 3 MiB, and wraps them in a review."""


class Webhook:
    """Decides by `policy`. nodes, quotas: called for each pod; empty where nothing is known.

    trouble: what is wrong with background tasks; empty where nothing is.
    claims: whether /mutate/claims is served. quota: of claims; None: they are not limited.
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
        quota: ClaimQuotas | None = None,
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
        """Set it before stopping: `/readyz` fails, and requests go to other replicas."""

    def routes(self) -> Routes:
        to_claims = self._review_page("claims", self.mutate_to_claims)
        claims: Routes = {MUTATE_TO_CLAIMS: {"POST": to_claims}} if self._claims else {}
        return {
            **claims,
            MUTATE: {"POST": self._review_page("mutate", self._mutate)},
            VALIDATE: {"POST": self._review_page("validate", self._validate)},
            VALIDATE_CLAIMS: {
                "POST": self._review_page("validate-claims", self._validate_claim, "claim")
            },
            "/healthz": {"GET": page_of(self._healthz)},
            "/readyz": {"GET": page_of(self._readyz)},
            "/metrics": {"GET": page_of(lambda: metrics(self._metrics.text()))},
            "/version": {"GET": page_of(lambda: plain(self._version))},
        }

    def _mutate(self, review: Review) -> Decision:
        pod, notes = mutate(review.object, self._policy, self._nodes())
        return Decision(warnings=notes, patch=tuple(differences(review.object, pod)))

    def _validate(self, review: Review) -> Decision:
        exceeds = partial(why_never_fits, self._quotas(), review.namespace)
        return validate(review.object, self._policy, self._nodes(), exceeds)

    def _validate_claim(self, review: Review) -> Decision:
        return validate_claim(review.kind, review.object, self._policy, self._nodes())

    def mutate_to_claims(self, review: Review) -> Decision:
        """Mutate and validate in one: `/validate` finds no request for GPUs in the result."""
        pod, notes = mutate(review.object, self._policy, self._nodes(), claims=True)
        asks = read_asks(pod)
        if not asks:
            return Decision()
        found = validate(pod, self._policy, self._nodes())
        errors: Sequence[str] = found.errors
        try:
            earlier = earlier_claim(pod)
        except ValueError as error:
            errors = (*errors, str(error))
        if not errors:
            claim, uses = shape_of(pod, asks, earlier, tiers=self._policy.claim_alternatives)
            if quota := self._claim_quota:
                if earlier and not review.dry_run:  # a later webhook has changed the pod
                    quota.withdraw(review.namespace, earlier)
                errors = quota.refusals(review.namespace, claim)
                if not errors and not review.dry_run:
                    quota.expect(review.namespace, claim)
        if errors:
            return Decision(errors, found.warnings)
        convert(pod, asks, claim, uses)
        became = f"{' and '.join(RESOURCES)} became a claim of the template {claim.name}"
        steps = tuple(differences(review.object, pod))
        return Decision(warnings=(*found.warnings, became, *notes), patch=steps)

    def _review_page(
        self, endpoint: str, decide: Callable[[Review], Decision], subject: str = "pod"
    ) -> Page:
        """Return the page that answers reviews of `subject` with what `decide` returns."""

        async def answer(request: web.BaseRequest, body: bytes) -> web.Response:
            if request.content_type != JSON:
                raise HttpRefusal(415, f"send {JSON}")
            began, outcome = time.perf_counter(), MALFORMED
            fail_open = self._policy.fail_open
            try:
                review = read_review(body)
                decision = decide_safely(review, decide, fail_open=fail_open, subject=subject)
                outcome = decision.outcome
            except ReviewUnreadable as error:
                raise HttpRefusal(400, str(error)) from None
            finally:
                self._metrics.took(endpoint, outcome, time.perf_counter() - began)
            if decision.outcome == "refused":
                kind = "pod" if review.kind == "Pod" else review.kind
                log.info("%s %s is refused: %s", kind, name_of(review), "; ".join(decision.errors))
            elif decision.patch:
                paths = ", ".join(step["path"] for step in decision.patch)
                log.info("pod %s: %s", name_of(review), paths)
            return web.Response(
                body=encode_response(review, decision), headers={"Content-Type": JSON}
            )

        return answer

    def _healthz(self) -> web.Response:
        """Certificates are not looked at: without a valid one no request gets here."""
        if trouble := self._trouble():
            raise HttpRefusal(503, trouble)
        return plain("ok")

    def _readyz(self) -> web.Response:
        if self.leaving:
            raise HttpRefusal(503, "about to stop")
        return plain("ready")


def name_of(review: Review) -> str:
    """Return `namespace/name` for the log. A pod of a controller has only a generateName yet."""
    found = review.object.get("metadata")
    metadata = found if isinstance(found, dict) else {}
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return f"{review.namespace}/{name}"[:300]
