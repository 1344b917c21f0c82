"""Keeps a server's certificate fresh: polls its source, which is files or our own CA.

If the source fails, the current certificate stays in use. Open connections keep the certificate
they began with. Only a working certificate replaces the current one.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import NOT_UNDERSTOOD
from gpumanager.scheduler.certificates.own_ca import OwnCertificate
from gpumanager.scheduler.certificates.x509 import CertificateTrouble, KeyPair, read_certificate

log = logging.getLogger(__name__)

PERIOD: Final = 10.0
FIRST_PERIOD: Final = 2.0
"""Seconds between two refreshes, and while there is nothing to serve with."""


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files. One that was changed just before the other does not fit it, for a moment.

    callers: with the CAs of client certificates; None: clients need none.
    """

    certificate: Path
    key: Path
    callers: Path | None = None

    async def fetch(self, _now: datetime) -> KeyPair:
        return await asyncio.to_thread(self._read)

    def _read(self) -> KeyPair:
        try:
            callers = self.callers.read_bytes() if self.callers else None
            return KeyPair(self.certificate.read_bytes(), self.key.read_bytes(), callers)
        except OSError as error:
            cause = f"{error.filename}: cannot be read: {error.strerror}"
            raise CertificateTrouble(cause) from error


class Keeper:
    """What to serve with now. clock: with a time zone."""

    def __init__(
        self,
        source: Files | OwnCertificate,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._source = source
        self._clock = clock
        self._identity: KeyPair | None = None
        self._context: ssl.SSLContext | None = None
        self._reported = ""
        self.first = asyncio.Event()
        """Set when there is something to serve with."""

    def context(self) -> ssl.SSLContext:
        """Return the current one; raises CertificateTrouble before there is one."""
        if self._context is None:
            raise CertificateTrouble("there is no certificate yet")
        return self._context

    @property
    def ends(self) -> datetime | None:
        """Return when the certificate ends; None before there is one."""
        return read_certificate(self._identity.certificate).not_after if self._identity else None

    async def run(self) -> None:
        """Refresh for as long as the task lives."""
        while True:
            await self.refresh()
            await asyncio.sleep(PERIOD if self.first.is_set() else FIRST_PERIOD)

    async def begin(self) -> None:
        """Take what the source has now; raises GpuManagerError where that cannot be served with."""
        identity = await self._source.fetch(self._clock())
        if identity != self._identity:
            read = read_certificate(identity.certificate)
            self._context = await asyncio.to_thread(identity.context)
            self._identity = identity
            names = ", ".join(sorted(read.names)) or "nobody"
            log.info("serving with a certificate for %s until %s", names, f"{read.not_after:%F}")
        self.first.set()

    async def refresh(self) -> None:
        """Take what the source has now; log an error once."""
        try:
            await self.begin()
            self._reported = ""
        except (GpuManagerError, *NOT_UNDERSTOOD) as error:
            text = f"{type(error).__name__}: {error}"
            log.log(logging.DEBUG if text == self._reported else logging.WARNING, "%s", text)
            self._reported = text
