"""Writes the CA bundle to where the API server reads it: each webhook's `caBundle`."""

import base64
import logging
from collections.abc import Sequence
from typing import Any, Final

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
        """Write it where it is not; whether it stood everywhere already.

        Without any configuration nobody is to be told, and nothing is announced. Raises ApiRefused,
        ApiUnavailable.
        """
        bundle = base64.b64encode(trusted).decode()
        found = [await self._keep(path, bundle) for path in self._paths]
        there = [one for one in found if one is not None]
        if not there and not self._missing:
            log.warning("there is no webhook configuration yet: %s", ", ".join(self._paths))
        self._missing = not there
        return bool(there) and all(there)

    async def _keep(self, path: str, bundle: str) -> bool | None:
        """Whether it stood there already; None where there is no such configuration."""
        for _ in range(ATTEMPTS):
            configuration = await find(self._api, path)
            if configuration is None:
                return None
            patch = _patch(configuration, bundle)
            if patch is None:
                return True
            try:
                await self._api.patch(path, patch)
            except ApiRefused as error:
                if not is_conflict(error):
                    raise
                continue
            log.info("%s: caBundle updated", path)
            return False
        return False


def _patch(configuration: Any, bundle: str) -> dict[str, Any] | None:
    """A list is patched whole; the version keeps us from undoing what others write meanwhile."""
    hooks = configuration.get("webhooks") or []
    if all((hook.get("clientConfig") or {}).get("caBundle") == bundle for hook in hooks):
        return None
    changed = [
        {**hook, "clientConfig": {**(hook.get("clientConfig") or {}), "caBundle": bundle}}
        for hook in hooks
    ]
    version = configuration["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "webhooks": changed}
