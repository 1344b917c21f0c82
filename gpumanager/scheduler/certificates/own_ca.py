"""The webhook's own CA and serving certificate, for clusters without cert-manager.

All replicas share one Secret. The replica that first finds a renewal due writes it; if another
replica has written meanwhile, the API server answers with a conflict, and the replica takes that
one's. So all replicas serve the same certificate. The CA is written into the `caBundle` of the
webhook configurations, where the API server reads whom to trust.

A new CA joins the old one in that bundle just after the old one has signed a serving certificate
once more, and signs the next one itself, two months later. So no replica serves a certificate that
the bundle does not cover.
"""

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.writer import retry_on_conflict
from gpumanager.scheduler.certificates.x509 import (
    CertificateTrouble,
    KeyPair,
    issue,
    make_authority,
    read_certificate,
    unexpired,
)

log = logging.getLogger(__name__)

REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
AUTHORITY_LIFE: Final = timedelta(days=365)
SERVING_LIFE: Final = timedelta(days=90)
DUE: Final = 2 / 3
"""How much of its life may be over before something is made anew."""


@dataclass(frozen=True, slots=True)
class CaState:
    """What the Secret holds. authority: the CA that signs, and behind it those before it that are
    still valid: the bundle to trust."""

    authority: KeyPair
    serving: KeyPair


def renew(state: CaState | None, now: datetime, names: Sequence[str]) -> CaState:
    """Return what there should be now; `state` itself where that is what there is.

    names: what the server is called.
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
    old = authority.life_over(now) >= DUE
    good = served.not_before <= now and served.life_over(now) < DUE
    if good and not old and served.names == frozenset(names):
        return state
    serving = issue(state.authority, names, now, SERVING_LIFE)
    if not old:
        return CaState(state.authority, serving)
    fresh = make_authority(now, AUTHORITY_LIFE)
    bundle = fresh.certificate + unexpired(state.authority.certificate, now)
    return CaState(KeyPair(bundle, fresh.key), serving)


def to_secret(state: CaState) -> dict[str, str]:
    """Return `data` of a Secret."""
    parts = {"tls": state.serving, "ca": state.authority}
    texts = {f"{name}.crt": one.certificate for name, one in parts.items()}
    texts |= {f"{name}.key": one.key for name, one in parts.items()}
    return {name: base64.b64encode(text).decode() for name, text in texts.items()}


def from_secret(data: Mapping[str, Any]) -> CaState | None:
    """Read it; None where nothing was written yet. Raises CertificateTrouble."""
    if not any(data.values()):
        return None
    pairs = []
    for name in ("ca", "tls"):
        try:
            texts = (data.get(f"{name}.{part}") or "" for part in ("crt", "key"))
            pair = KeyPair(*(base64.b64decode(text, validate=True) for text in texts))
        except (TypeError, ValueError) as error:
            raise CertificateTrouble(f"not base64: {error}") from error
        if not pair.key:
            raise CertificateTrouble(f"it has no {name}.key")
        read_certificate(pair.certificate)  # raises where it is none
        pairs.append(pair)
    return CaState(*pairs)


class OwnCertificate:
    """A source for the keeper. secret: namespace and name. names: of the server.

    configurations: names of webhook configurations, mutating and validating.
    """

    def __init__(
        self,
        api: KubeClient,
        secret: tuple[str, str],
        names: Sequence[str],
        configurations: Sequence[str],
    ) -> None:
        self._api = api
        self._secret = secret
        self._names = names
        self._configurations = [
            f"{REGISTRATION}/{kind}/{name}" for kind in KINDS for name in configurations
        ]
        self._unconfigured = False

    async def fetch(self, now: datetime) -> KeyPair:
        state: CaState = await retry_on_conflict(partial(self._renew, now))
        bundle = base64.b64encode(state.authority.certificate).decode()
        writes = (partial(self._announce, path, bundle) for path in self._configurations)
        if any([await retry_on_conflict(write) for write in writes]):
            self._unconfigured = False
        elif not self._unconfigured:
            names = ", ".join(self._configurations)
            log.warning("there is no webhook configuration yet: %s", names)
            self._unconfigured = True
        return state.serving

    async def _renew(self, now: datetime) -> CaState:
        """Return what the Secret holds, after everything due was renewed."""
        namespace, name = self._secret
        folder = f"/api/v1/namespaces/{namespace}/secrets"
        found = await self._api.find(f"{folder}/{name}")
        try:
            before = from_secret((found or {}).get("data") or {})
        except CertificateTrouble as error:
            cause = f"secret {namespace}/{name}: {error}; delete it, and a new one is made"
            raise CertificateTrouble(cause) from error
        after = renew(before, now, self._names)
        if after is before:
            return after
        if found:
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "data": to_secret(after)}
            await self._api.patch(f"{folder}/{name}", patch)
        else:
            made = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": namespace},
                "type": "Opaque",
                "data": to_secret(after),
            }
            await self._api.create(folder, made)
        log.info("created or renewed the certificates in secret %s/%s", namespace, name)
        return after

    async def _announce(self, path: str, bundle: str) -> bool:
        """Write the bundle where it is missing; False where there is no such configuration."""
        found = await self._api.find(path)
        if found is None:
            return False
        hooks = found.get("webhooks") or []
        clients = [hook.get("clientConfig") or {} for hook in hooks]
        if any(client.get("caBundle") != bundle for client in clients):
            # A list is patched whole; the version keeps what others write meanwhile.
            changed = [
                {**hook, "clientConfig": {**client, "caBundle": bundle}}
                for hook, client in zip(hooks, clients, strict=True)
            ]
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            await self._api.patch(path, {"metadata": version, "webhooks": changed})
            log.info("%s: caBundle updated", path)
        return True
