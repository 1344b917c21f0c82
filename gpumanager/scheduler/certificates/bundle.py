"""Writes the CA bundle to where the API server reads it: each webhook's `caBundle`."""

import base64
import logging
from collections.abc import Sequence
from typing import Final

from gpumanager.kube.errors import ApiRefused
from gpumanager.scheduler.certificates.api import (
    KINDS,
    REGISTRATION,
    CertificateApi,
    find,
    is_conflict,
)

log = logging.getLogger(__name__)

ATTEMPTS: Final = 4


class Bundles:
    """Of the configurations of these names, mutating and validating."""

    def __init__(self, api: CertificateApi, names: Sequence[str]) -> None:
        self._api = api
        self._paths = [f"{REGISTRATION}/{kind}/{name}" for kind in KINDS for name in names]
        self._missing = False

    async def announce(self, trusted: bytes) -> bool:
        """Write it where it is not; return whether it stood everywhere already.

        Without any configuration nothing is announced. Raises ApiRefused, ApiUnavailable.
        """
        bundle = base64.b64encode(trusted).decode()
        found = [await self._write(path, bundle) for path in self._paths]
        there = [one for one in found if one is not None]
        if not there and not self._missing:
            log.warning("there is no webhook configuration yet: %s", ", ".join(self._paths))
        self._missing = not there
        return bool(there) and all(there)

    async def _write(self, path: str, bundle: str) -> bool | None:
        """Return whether it stood there already; None where there is no such configuration."""
        for _ in range(ATTEMPTS):
            configuration = await find(self._api, path)
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
                if not is_conflict(error):
                    raise
                continue
            log.info("%s: caBundle updated", path)
            return False
        return False
