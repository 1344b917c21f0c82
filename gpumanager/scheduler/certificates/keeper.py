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
from gpumanager.scheduler.certificates.making import describe
from gpumanager.scheduler.certificates.values import CertificateSource, CertificateTrouble, KeyPair

log = logging.getLogger(__name__)

PERIOD: Final = 10.0
FIRST_PERIOD: Final = 2.0
"""Seconds between two looks, and while there is nothing to serve with."""
LATE_PART_OF_LIFE: Final = 5 / 6
"""How much of its life may be over before it is said that nothing new came."""


def _now() -> datetime:
    return datetime.now(UTC)


class Keeper:
    """What to serve with now. clock: with a time zone."""

    def __init__(self, source: CertificateSource, clock: Callable[[], datetime] = _now) -> None:
        self._source = source
        self._clock = clock
        self._identity: KeyPair | None = None
        self._context: ssl.SSLContext | None = None
        self._said = ""
        self._late: KeyPair | None = None
        self.first = asyncio.Event()
        """Set when there is something to serve with."""

    def context(self) -> ssl.SSLContext:
        """Raises CertificateTrouble before there is one."""
        if self._context is None:
            raise CertificateTrouble("there is no certificate yet")
        return self._context

    @property
    def ends(self) -> datetime | None:
        """When the certificate does; None before there is one."""
        return describe(self._identity.certificate).ends if self._identity else None

    async def run(self) -> None:
        """For as long as the task lives."""
        while True:
            await self.look()
            await asyncio.sleep(PERIOD if self.first.is_set() else FIRST_PERIOD)

    async def begin(self) -> None:
        """Take what the source has now; raises GpuManagerError where that cannot be served with."""
        await self._take(self._clock())
        self.first.set()

    async def look(self) -> None:
        """Take what the source has now; what goes wrong is said, once."""
        now = self._clock()
        try:
            await self._take(now)
            self._said = ""
        except (GpuManagerError, KeyError, TypeError, AttributeError, ValueError) as error:
            self._complain(error)
        if self._context is not None:
            self.first.set()
            self._warn_of_end(now)

    async def _take(self, now: datetime) -> None:
        identity = await self._source.look(now)
        if identity != self._identity:
            about = _about(identity)
            self._context = await asyncio.to_thread(identity.context)
            self._identity = identity
            log.info("serving with %s", about)

    def _complain(self, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"
        log.log(logging.DEBUG if said == self._said else logging.WARNING, "%s", said)
        self._said = said

    def _warn_of_end(self, now: datetime) -> None:
        """Once for each certificate."""
        if self._identity is None or self._late is self._identity:
            return
        found = describe(self._identity.certificate)
        if found.used_up(now) >= LATE_PART_OF_LIFE:
            log.warning("%s has not been renewed yet", _about(self._identity))
            self._late = self._identity


def _about(identity: KeyPair) -> str:
    found = describe(identity.certificate)
    return f"a certificate for {', '.join(sorted(found.names)) or 'nobody'} until {found.ends:%F}"
