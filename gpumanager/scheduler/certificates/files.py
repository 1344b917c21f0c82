"""A certificate from files, as cert-manager or a mounted Secret gives them; they may change."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpumanager.scheduler.certificates.values import CertificateTrouble, Identity


@dataclass(frozen=True, slots=True)
class Files:
    """Two PEM files. One that was changed just before the other does not fit it, for a moment."""

    certificate: Path
    key: Path

    async def look(self, now: datetime) -> Identity:  # noqa: ARG002 - others need it
        return await asyncio.to_thread(self._read)

    def _read(self) -> Identity:
        try:
            return Identity(self.certificate.read_bytes(), self.key.read_bytes())
        except OSError as error:
            cause = f"{error.filename}: cannot be read: {error.strerror}"
            raise CertificateTrouble(cause) from error
