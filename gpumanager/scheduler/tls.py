"""The server's certificate, from files that may be replaced while it serves."""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from gpumanager.errors import InputError

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0


class ServerCertificate:
    """A context for a server. authority: of callers' certificates; None: they need none."""

    def __init__(self, certificate: Path, key: Path, authority: Path | None = None) -> None:
        self._files = (certificate, key)
        self._authority = authority
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if authority is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED
            self._believe(authority)
        try:
            self.context.load_cert_chain(*self._files)
        except OSError as error:
            raise InputError(
                certificate, f"no certificate with its key in {key}: {error}"
            ) from error
        self._state = self._look()

    def renew(self) -> bool:
        """Read the files again where they changed; callers that are connected notice nothing."""
        try:
            state = self._look()
            if state == self._state:
                return False
            self.context.load_cert_chain(*self._files)
        except OSError as error:
            log.warning("%s: the old certificate stays in use: %s", self._files[0], error)
            return False
        self._state = state
        log.info("%s: a new certificate is in use", self._files[0])
        return True

    async def run(self) -> None:
        """Looks every few seconds, for as long as the task lives."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.renew()

    def _look(self) -> tuple[int, ...]:
        return tuple(number for file in self._files for number in _mark(file))

    def _believe(self, authority: Path) -> None:
        try:
            self.context.load_verify_locations(authority)
        except OSError as error:
            raise InputError(authority, f"is no certificate of an authority: {error}") from error


def _mark(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_ino
