"""Where a server's certificate comes from: files, our own CA, or a signer of the cluster.

Files: cert-manager or a mounted Secret provides them, and they may change.

Our own CA: all replicas share one Secret. The replica that first finds a renewal due writes it; if
another replica has written meanwhile, the API server answers with a conflict, and the replica takes
that one's. So all replicas serve the same certificate. The CA is written into the `caBundle` of the
webhook configurations, where the API server reads whom to trust.

A signer of the cluster: each replica requests its own certificate by a CertificateSigningRequest;
the key never leaves the replica. A controller or a person has to approve the request. The
administrator writes the signer's CA into the `caBundle`.
"""

import asyncio
import base64
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

from gpumanager.kube.errors import ApiRefused
from gpumanager.scheduler.certificates.ca_state import (
    DUE,
    SERVING_LIFE,
    CaState,
    from_secret,
    step,
    to_secret,
)
from gpumanager.scheduler.certificates.x509 import (
    CertificateTrouble,
    KeyPair,
    make_request,
    read_certificate,
)

log = logging.getLogger(__name__)

REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
SIGNING: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
ATTEMPTS: Final = 5
RETRY_REFUSED_AFTER: Final = timedelta(minutes=5)
"""How long after a refusal the next request is made."""


class CertificateSource(Protocol):
    """Where a certificate comes from."""

    async def fetch(self, now: datetime) -> KeyPair:
        """Return the one to serve with now; called again and again. Raises GpuManagerError."""
        ...


class CertificateApi(Protocol):
    """Of `gpumanager.kube.client.KubeClient`. Raises ApiRefused, ApiUnavailable."""

    async def get(self, path: str) -> Any: ...

    async def create(self, path: str, body: Mapping[str, Any]) -> Any: ...

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files. One that was changed just before the other does not fit it, for a moment.

    callers: with the CAs of client certificates; None: clients need none.
    """

    certificate: Path
    key: Path
    callers: Path | None = None

    async def fetch(self, now: datetime) -> KeyPair:  # noqa: ARG002 - others need it
        return await asyncio.to_thread(self._read)

    def _read(self) -> KeyPair:
        try:
            callers = self.callers.read_bytes() if self.callers else None
            return KeyPair(self.certificate.read_bytes(), self.key.read_bytes(), callers)
        except OSError as error:
            cause = f"{error.filename}: cannot be read: {error.strerror}"
            raise CertificateTrouble(cause) from error


@dataclass(frozen=True, slots=True)
class Named:
    """An object in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class OwnCertificate:
    """Our own CA. names: of the server, as `gpu-manager-webhook.kube-system.svc`.

    configurations: names of webhook configurations, mutating and validating.
    """

    def __init__(
        self,
        api: CertificateApi,
        secret: Named,
        names: Sequence[str],
        configurations: Sequence[str],
    ) -> None:
        self._api = api
        self._secret = secret
        self._path = f"/api/v1/namespaces/{secret.namespace}/secrets/{secret.name}"
        self._names = tuple(names)
        self._configurations = [
            f"{REGISTRATION}/{kind}/{name}" for kind in KINDS for name in configurations
        ]
        self._unconfigured = False
        self._announced: tuple[bytes, datetime] | None = None

    async def fetch(self, now: datetime) -> KeyPair:
        state = await self._renew_secret(now)
        if not await self._announce(state.trusted):
            self._announced = None
        elif self._announced is None or self._announced[0] != state.trusted:
            self._announced = (state.trusted, now)
        return state.serving

    async def _renew_secret(self, now: datetime) -> CaState:
        """Return what the Secret holds, after everything due was renewed."""
        for _ in range(ATTEMPTS):
            secret = await _find(self._api, self._path)
            try:
                before = from_secret((secret or {}).get("data") or {})
            except CertificateTrouble as error:
                cause = f"secret {self._secret}: {error}; delete it, and a new one is made"
                raise CertificateTrouble(cause) from error
            seen = None  # for how long we have seen this bundle announced
            if before and self._announced and self._announced[0] == before.trusted:
                seen = now - self._announced[1]
            after = step(before, now, self._names, announced=seen)
            if after is before or await self._write_secret(secret, after):
                return after
        raise CertificateTrouble(f"secret {self._secret} keeps changing: another client writes it")

    async def _write_secret(self, secret: Any, state: CaState) -> bool:
        """Return whether it was written; False where another writer was first."""
        data = to_secret(state)
        try:
            if secret is None:
                metadata = {"name": self._secret.name, "namespace": self._secret.namespace}
                made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
                folder = self._path.rpartition("/")[0]
                await self._api.create(folder, {**made, "type": "Opaque", "data": data})
            else:
                version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
                await self._api.patch(self._path, {"metadata": version, "data": data})
        except ApiRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return False
        log.info("created or renewed the certificates in secret %s", self._secret)
        return True

    async def _announce(self, trusted: bytes) -> bool:
        """Write the bundle where it is missing; return whether it was everywhere already.

        Without any configuration nothing is announced.
        """
        bundle = base64.b64encode(trusted).decode()
        found = [await self._write_bundle(path, bundle) for path in self._configurations]
        there = [one for one in found if one is not None]
        if not there and not self._unconfigured:
            log.warning(
                "there is no webhook configuration yet: %s", ", ".join(self._configurations)
            )
        self._unconfigured = not there
        return bool(there) and all(there)

    async def _write_bundle(self, path: str, bundle: str) -> bool | None:
        """Return whether it was there already; None where there is no such configuration."""
        for _ in range(ATTEMPTS):
            configuration = await _find(self._api, path)
            if configuration is None:
                return None
            hooks = configuration.get("webhooks") or []
            if all((hook.get("clientConfig") or {}).get("caBundle") == bundle for hook in hooks):
                return True
            # A list is patched whole; the version keeps what others write meanwhile.
            changed = [
                {**hook, "clientConfig": {**(hook.get("clientConfig") or {}), "caBundle": bundle}}
                for hook in hooks
            ]
            version = {"resourceVersion": configuration["metadata"]["resourceVersion"]}
            try:
                await self._api.patch(path, {"metadata": version, "webhooks": changed})
            except ApiRefused as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
            else:
                log.info("%s: caBundle updated", path)
                return False
        return False


class RequestedCertificate:
    """From a signer, as `example.com/webhooks`. names: of the server."""

    def __init__(self, api: CertificateApi, signer: str, names: Sequence[str]) -> None:
        self._api = api
        self._signer = signer
        self._names = tuple(names)
        self._held: KeyPair | None = None
        self._asked: tuple[str, KeyPair] | None = None
        self._not_before: datetime | None = None

    async def fetch(self, now: datetime) -> KeyPair:
        """Return what we have while it is good, and while a new one is waited for."""
        held = self._held
        if held and read_certificate(held.certificate).life_over(now) < DUE:
            return held
        try:
            return await self._renew(now)
        except CertificateTrouble as error:
            if held is None or read_certificate(held.certificate).not_after <= now:
                raise
            log.warning("%s; still serving with the current certificate", error)
            return held

    async def _renew(self, now: datetime) -> KeyPair:
        # Later than RETRY_REFUSED_AFTER from now: the clock was ahead when it refused.
        if self._not_before is not None and now < self._not_before <= now + RETRY_REFUSED_AFTER:
            raise CertificateTrouble(f"{self._signer} refused; the next request is in some minutes")
        if self._asked is None:
            self._asked = await self._create_request()
        name, request = self._asked
        found = await _find(self._api, f"{SIGNING}/{name}")
        if found is None:
            self._asked = None
            cause = f"the signing request {name} is gone; the webhook creates another"
            raise CertificateTrouble(cause)
        status = found.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition.get("type") in {"Denied", "Failed"}:
                self._asked, self._not_before = None, now + RETRY_REFUSED_AFTER
                cause = (
                    f"{condition['type']}: {condition.get('message') or condition.get('reason')}"
                )
                raise CertificateTrouble(f"the signing request {name} was refused: {cause}")
        if not status.get("certificate"):
            cause = f"waits for {self._signer}: run kubectl certificate approve {name}"
            raise CertificateTrouble(f"the signing request {name} {cause}")
        self._asked, self._not_before = None, now + RETRY_REFUSED_AFTER
        made = KeyPair(base64.b64decode(status["certificate"]), request.key)
        made.context()  # raises where it does not fit the key
        self._held, self._not_before = made, None
        return made

    async def _create_request(self) -> tuple[str, KeyPair]:
        request = make_request(self._names)
        name = f"gpu-manager-webhook-{secrets.token_hex(4)}"
        spec = {
            "signerName": self._signer,
            "request": base64.b64encode(request.certificate).decode(),
            "usages": ["digital signature", "server auth"],
            "expirationSeconds": int(SERVING_LIFE.total_seconds()),
        }
        made = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
        await self._api.create(SIGNING, {**made, "metadata": {"name": name}, "spec": spec})
        return name, request


async def _find(api: CertificateApi, path: str) -> Any:
    """Return the object; None where there is none."""
    try:
        return await api.get(path)
    except ApiRefused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None
