"""A certificate from files that may change, as cert-manager or a mounted Secret provides them."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpumanager.scheduler.certificates.values import CertificateTrouble, KeyPair


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files. One that was changed just before the other does not fit it, for a moment.

    callers: with the authorities of callers' certificates; None: callers need none.
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
