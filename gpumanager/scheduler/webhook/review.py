"""AdmissionReview requests and responses. Pure: bytes in, bytes out.

It reads `admission.k8s.io/v1` and v1beta1, whose fields are the same, and responds in the version
of the request. A body that is no review raises `ReviewUnreadable`. If checking a pod fails, the
policy decides: allow with a warning (open), or deny with an error (closed).
"""

import base64
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import NOT_UNDERSTOOD

log = logging.getLogger(__name__)

GROUP: Final = "admission.k8s.io/"
VERSIONS: Final = (f"{GROUP}v1", f"{GROUP}v1beta1")
CLAIMS: Final = ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass")
INVALID: Final = 422
LONGEST_WARNING: Final = 250
"""The API server cuts at 256, and leaves out what is beyond 4096 together."""
MOST_WARNINGS: Final = 12
LONGEST_MESSAGE: Final = 8192


class ReviewUnreadable(GpuManagerError):
    """What was sent is no AdmissionReview that is known here."""


@dataclass(frozen=True, slots=True)
class Review:
    """A request. version: of the API. kind: of the object. old: the object before an update."""

    version: str
    uid: str
    kind: str
    operation: str
    subresource: str
    namespace: str
    object: Any
    old: Any = None
    dry_run: bool = False

    @property
    def subject(self) -> str:
        """Return `pod` or `claim`, for people; empty for what is not checked.

        Nor is an update that leaves the spec as it is: what was let in, or was there before us, has
        to be changed by the scheduler and deleted, which removes a finalizer.
        """
        if self.subresource or self.operation not in ("CREATE", "UPDATE"):
            return ""
        if self.kind in CLAIMS:
            same = self.operation == "UPDATE" and _spec(self.old) == _spec(self.object)
            return "" if same else "claim"
        return "pod" if (self.kind, self.operation) == ("Pod", "CREATE") else ""


@dataclass(frozen=True, slots=True)
class Remark:
    """About an object, for its author. fatal: it is refused for this."""

    text: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    """errors: the object is refused for these. warnings: it is let in all the same. patch: what to
    change then (RFC 6902). failed: it could not be checked, and was let in or refused for that."""

    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    patch: Sequence[Mapping[str, Any]] = ()
    failed: bool = False

    @classmethod
    def by(cls, remarks: Collection[Remark]) -> "Decision":
        return cls(
            tuple(remark.text for remark in remarks if remark.fatal),
            tuple(remark.text for remark in remarks if not remark.fatal),
        )

    @property
    def outcome(self) -> str:
        """Return its name for metrics."""
        if self.failed:
            return "failed"
        if self.errors:
            return "refused"
        return "changed" if self.patch else "allowed"


def read_review(body: bytes) -> Review:
    """Read a request; raises ReviewUnreadable."""
    try:
        content = json.loads(body)
    except RecursionError:
        raise ReviewUnreadable("the body is nested too deeply") from None
    except ValueError as error:
        raise ReviewUnreadable(f"the body is not JSON: {error}") from None
    try:
        version, request = content["apiVersion"], content["request"]
        if version not in VERSIONS:
            known = " or ".join(VERSIONS)
            raise ReviewUnreadable(f"{str(version)[:80]!r} is not known; send {known}")
        if not isinstance(request["uid"], str):
            raise ReviewUnreadable("the body is no AdmissionReview: its uid is no text")
        return Review(
            version=version,
            uid=request["uid"],
            kind=str((request.get("kind") or {}).get("kind", "")),
            operation=str(request.get("operation", "")),
            subresource=str(request.get("subResource") or ""),
            namespace=str(request.get("namespace") or ""),
            object=request.get("object"),
            old=request.get("oldObject"),
            dry_run=request.get("dryRun") is True,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ReviewUnreadable(
            f"the body is no AdmissionReview with a request ({error!r})"
        ) from None


def decide_safely(
    review: Review,
    decide: Callable[[Review], Decision],
    *,
    fail_open: bool,
    subject: str = "pod",
) -> Decision:
    """Return what `decide` returns; where it raises, a decision by the policy. Objects that are no
    `subject` are let in."""
    if review.subject != subject:
        return Decision()
    try:
        return decide(review)
    except NOT_UNDERSTOOD as error:
        why = f"it is not understood: {error!r}"[:LONGEST_WARNING]
        log.warning("a %s of namespace %r: %s", subject, review.namespace[:100], why)
        log.debug("where it was not understood", exc_info=True)
    except Exception:
        log.exception("reviewing a %s of namespace %r failed", subject, review.namespace[:100])
        why = "internal error, see the webhook's log"
    text = f"gpu-manager could not look at this {subject}: {why}"
    if fail_open:
        return Decision(warnings=(text,), failed=True)
    return Decision(errors=(text,), failed=True)


def differences(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the JSON patch from one object to another."""
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        before, after = dict(enumerate(before)), dict(enumerate(after))
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield {"op": "replace", "path": path, "value": after}
        return
    for key in {**before, **after}:
        below = f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
        if key not in after:
            yield {"op": "remove", "path": below}
        elif key not in before:
            yield {"op": "add", "path": below, "value": after[key]}
        else:
            yield from differences(before[key], after[key], below)


def _spec(item: Any) -> Any:
    return item.get("spec") if isinstance(item, dict) else None


def encode_response(review: Review, decision: Decision) -> bytes:
    """Return the AdmissionReview to send back."""
    response: dict[str, Any] = {"uid": review.uid, "allowed": not decision.errors}
    if decision.errors:
        message = "; ".join(decision.errors)[:LONGEST_MESSAGE]
        response["status"] = {"code": INVALID, "reason": "Invalid", "message": message}
    elif decision.patch:
        steps = json.dumps(list(decision.patch)).encode()
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(steps).decode()}
    if decision.warnings:
        response["warnings"] = [
            text if len(text) <= LONGEST_WARNING else text[: LONGEST_WARNING - 1] + "…"
            for text in decision.warnings[:MOST_WARNINGS]
        ]
    answer = {"apiVersion": review.version, "kind": "AdmissionReview", "response": response}
    return json.dumps(answer).encode()
