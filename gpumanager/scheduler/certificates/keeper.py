"""Keeps a server's certificate fresh: polls its source.

If the source fails, the current certificate stays in use. Open connections keep the certificate
they began with. Only a working certificate replaces the current one.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.scheduler.certificates.sources import CertificateSource
from gpumanager.scheduler.certificates.x509 import CertificateTrouble, KeyPair, read_certificate

log = logging.getLogger(__name__)

PERIOD: Final = 10.0
FIRST_PERIOD: Final = 2.0
"""Seconds between two refreshes, and while there is nothing to serve with."""
LATE_PART_OF_LIFE: Final = 5 / 6
"""How much of its life may be over before a warning is logged that nothing new came."""


class Keeper:
    """What to serve with now. clock: with a time zone."""

    def __init__(
        self,
        source: CertificateSource,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._source = source
        self._clock = clock
        self._identity: KeyPair | None = None
        self._context: ssl.SSLContext | None = None
        self._reported = ""
        self._late: KeyPair | None = None
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
        await self._take(self._clock())
        self.first.set()

    async def refresh(self) -> None:
        """Take what the source has now; log an error, and a late renewal, once each."""
        now = self._clock()
        try:
            await self._take(now)
            self._reported = ""
        except (GpuManagerError, KeyError, TypeError, AttributeError, ValueError) as error:
            text = f"{type(error).__name__}: {error}"
            log.log(logging.DEBUG if text == self._reported else logging.WARNING, "%s", text)
            self._reported = text
        if self._context is not None:
            self.first.set()
            if self._identity is not None and self._late is not self._identity:
                served = read_certificate(self._identity.certificate)
                if served.life_over(now) >= LATE_PART_OF_LIFE:
                    log.warning("%s has not been renewed yet", _about(self._identity))
                    self._late = self._identity

    async def _take(self, now: datetime) -> None:
        identity = await self._source.fetch(now)
        if identity != self._identity:
            about = _about(identity)
            self._context = await asyncio.to_thread(identity.context)
            self._identity = identity
            log.info("serving with %s", about)


def _about(identity: KeyPair) -> str:
    read = read_certificate(identity.certificate)
    names = ", ".join(sorted(read.names)) or "nobody"
    return f"a certificate for {names} until {read.not_after:%F}"
