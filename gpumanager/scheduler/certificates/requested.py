"""A certificate from one of the cluster's signers, through a CertificateSigningRequest.

Each replica requests its own; the key never leaves the replica. A controller or a person has to
approve the request. The administrator puts the signer's CA into the webhooks' `caBundle`.
"""

import base64
import logging
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from gpumanager.scheduler.certificates.api import SIGNING, CertificateApi, find
from gpumanager.scheduler.certificates.values import CertificateTrouble, KeyPair
from gpumanager.scheduler.certificates.x509 import make_request, read_certificate

log = logging.getLogger(__name__)

USAGES: Final = ("digital signature", "server auth")
LIFE: Final = timedelta(days=90)
DUE: Final = 2 / 3
RETRY_REFUSED_AFTER: Final = timedelta(minutes=5)
"""How long after a refusal the next request is made."""


class RequestedCertificate:
    """signer: `example.com/webhooks`; names: what the server is called."""

    def __init__(
        self, api: CertificateApi, signer: str, names: Sequence[str], life: timedelta = LIFE
    ) -> None:
        self._api = api
        self._signer = signer
        self._names = tuple(names)
        self._life = life
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
        found = await find(self._api, f"{SIGNING}/{name}")
        if found is None:
            self._asked = None
            raise CertificateTrouble(
                f"the signing request {name} is gone; the webhook creates another"
            )
        status = found.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition.get("type") in {"Denied", "Failed"}:
                self._asked, self._not_before = None, now + RETRY_REFUSED_AFTER
                cause = condition.get("message") or condition.get("reason")
                raise CertificateTrouble(
                    f"the signing request {name} was refused: {condition['type']}: {cause}"
                )
        if not status.get("certificate"):
            raise CertificateTrouble(
                f"the signing request {name} waits for {self._signer}: run kubectl "
                f"certificate approve {name}"
            )
        self._asked, self._not_before = None, now + RETRY_REFUSED_AFTER
        made = KeyPair(base64.b64decode(status["certificate"]), request.key)
        made.context()
        self._held, self._not_before = made, None
        return made

    async def _create_request(self) -> tuple[str, KeyPair]:
        request = make_request(self._names)
        name = f"gpu-manager-webhook-{secrets.token_hex(4)}"
        await self._api.create(
            SIGNING,
            {
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"name": name},
                "spec": {
                    "signerName": self._signer,
                    "request": base64.b64encode(request.certificate).decode(),
                    "usages": list(USAGES),
                    "expirationSeconds": int(self._life.total_seconds()),
                },
            },
        )
        return name, request
