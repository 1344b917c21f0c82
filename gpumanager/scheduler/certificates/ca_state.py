"""Our own CA and serving certificate, and their rotation. Pure but for the keys.

    authority ──signs──> serving        next: a CA that is announced, and signs nothing yet
    former: CAs that have signed certificates which a replica may still serve

A new CA first joins the old one in the bundle that the API server trusts. After a while it signs
the serving certificate; after that has been served for a while, the old CA leaves the bundle. So
no replica ever serves a certificate that the bundle does not cover.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from gpumanager.scheduler.certificates.x509 import (
    BACKDATED,
    CertificateTrouble,
    KeyPair,
    issue,
    make_authority,
    read_certificate,
    split_bundle,
)

AUTHORITY_LIFE: Final = timedelta(days=365)
SERVING_LIFE: Final = timedelta(days=90)
DUE: Final = 2 / 3
"""How much of its life may be over before something is made anew."""
PROPAGATION: Final = timedelta(minutes=10)
"""How long the bundle has to have an authority before something is served that it signed."""
RETIRED_CA_KEPT: Final = timedelta(days=1)
"""How long the bundle keeps an authority that signs nothing any more."""


@dataclass(frozen=True, slots=True)
class CaState:
    """All there is. former: certificates without keys."""

    authority: KeyPair
    serving: KeyPair
    next: KeyPair | None = None
    former: tuple[bytes, ...] = ()

    @property
    def trusted(self) -> bytes:
        """Return the bundle: a client that has it trusts all that may be served now."""
        coming = (self.next.certificate,) if self.next else ()
        return b"".join((*self.former, self.authority.certificate, *coming))


def step(
    state: CaState | None,
    now: datetime,
    names: Sequence[str],
    *,
    announced: timedelta | None,
) -> CaState:
    """Return what there should be now; `state` itself where that is what there is.

    names: what the server is called. announced: for how long the bundle of `state` has been where
    the API server looks, as far as is known; None: it is not.
    """
    if state is not None:
        authority = read_certificate(state.authority.certificate)
        served = read_certificate(state.serving.certificate)
        if now < authority.not_before or min(authority.not_after, served.not_after) <= now:
            # Clients no longer trust it, or not yet. Example: a replica with a clock that was ahead
            # made it. There is nothing that could be kept going.
            state = None
    if state is None:
        fresh = make_authority(now, AUTHORITY_LIFE)
        return CaState(fresh, issue(fresh, names, now, SERVING_LIFE))
    if state.next and announced is not None and announced >= PROPAGATION:
        former = (*state.former, state.authority.certificate)
        serving = issue(state.next, names, now, SERVING_LIFE)
        return CaState(state.next, serving, None, former)
    good = served.not_before <= now and served.life_over(now) < DUE
    if not good or served.names != frozenset(names):
        return replace(state, serving=issue(state.authority, names, now, SERVING_LIFE))
    if state.next is None and authority.life_over(now) >= DUE:
        return replace(state, next=make_authority(now, AUTHORITY_LIFE))
    if state.former and now - served.not_before >= RETIRED_CA_KEPT + BACKDATED:
        return replace(state, former=())
    return state


def to_secret(state: CaState) -> dict[str, str]:
    """Return `data` of a Secret, empty texts too, so that a patch overwrites what was there."""
    coming = state.next or KeyPair(b"", b"")
    parts = {
        "tls.crt": state.serving.certificate,
        "tls.key": state.serving.key,
        "ca.crt": state.authority.certificate,
        "ca.key": state.authority.key,
        "next.crt": coming.certificate,
        "next.key": coming.key,
        "former.crt": b"".join(state.former),
    }
    return {name: base64.b64encode(text).decode() for name, text in parts.items()}


def from_secret(data: Mapping[str, Any]) -> CaState | None:
    """Read it; None where nothing was written yet. Raises CertificateTrouble."""
    try:
        parts = {name: base64.b64decode(text, validate=True) for name, text in data.items()}
    except (TypeError, ValueError) as error:
        raise CertificateTrouble(f"not base64: {error}") from error
    if not any(parts.values()):
        return None
    missing = [name for name in ("tls.crt", "tls.key", "ca.crt", "ca.key") if not parts.get(name)]
    if missing:
        raise CertificateTrouble(f"it has no {', '.join(missing)}")
    state = CaState(
        KeyPair(parts["ca.crt"], parts["ca.key"]),
        KeyPair(parts["tls.crt"], parts["tls.key"]),
        KeyPair(parts["next.crt"], parts["next.key"]) if parts.get("next.crt") else None,
        split_bundle(parts.get("former.crt", b"")),
    )
    for pair in (state.authority, state.serving, state.next):
        if pair:
            read_certificate(pair.certificate)  # raises where it is none
    return state
