"""A self-signed certificate, shared by all replicas through one Secret.

The Secret decides: the replica that first finds a renewal due writes it. If another replica has
written meanwhile, it takes that one's. So all replicas serve the same certificate.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from gpumanager.kube.errors import ApiRefused
from gpumanager.scheduler.certificates.api import CertificateApi, Named, find, is_conflict
from gpumanager.scheduler.certificates.bundle import Bundles
from gpumanager.scheduler.certificates.ca_state import CaState, Lives, from_secret, step, to_secret
from gpumanager.scheduler.certificates.values import CertificateTrouble, KeyPair

log = logging.getLogger(__name__)

ATTEMPTS: Final = 5


class OwnCertificate:
    """names: what the server is called, as `gpu-manager-webhook.kube-system.svc`."""

    def __init__(
        self,
        api: CertificateApi,
        secret: Named,
        names: Sequence[str],
        bundles: Bundles,
        lives: Lives | None = None,
    ) -> None:
        self._api = api
        self._secret = secret
        self._names = tuple(names)
        self._bundles = bundles
        self._lives = lives or Lives()
        self._announced: tuple[bytes, datetime] | None = None

    async def fetch(self, now: datetime) -> KeyPair:
        state = await self._renew_secret(now)
        if not await self._bundles.announce(state.trusted):
            self._announced = None
        elif self._announced is None or self._announced[0] != state.trusted:
            self._announced = (state.trusted, now)
        return state.serving

    async def _renew_secret(self, now: datetime) -> CaState:
        """Return what the Secret holds, after everything due was renewed."""
        for _ in range(ATTEMPTS):
            secret = await find(self._api, self._path)
            try:
                before = from_secret((secret or {}).get("data") or {})
            except CertificateTrouble as error:
                cause = f"secret {self._secret}: {error}; delete it, and a new one is made"
                raise CertificateTrouble(cause) from error
            seen = None  # for how long we have seen this bundle announced
            if before and self._announced and self._announced[0] == before.trusted:
                seen = now - self._announced[1]
            after = step(before, now, self._names, announced=seen, lives=self._lives)
            if after is before:
                return after
            try:
                await self._write(secret, after)
            except ApiRefused as error:
                if not is_conflict(error):
                    raise
                continue
            log.info("created or renewed the certificates in secret %s", self._secret)
            return after
        raise CertificateTrouble(f"secret {self._secret} keeps changing: another client writes it")

    async def _write(self, secret: Any, state: CaState) -> None:
        data = to_secret(state)
        if secret is not None:
            version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
            await self._api.patch(self._path, {"metadata": version, "data": data})
            return
        made = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._secret.name, "namespace": self._secret.namespace},
            "type": "Opaque",
            "data": data,
        }
        await self._api.create(self._path.rpartition("/")[0], made)

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._secret.namespace}/secrets/{self._secret.name}"
