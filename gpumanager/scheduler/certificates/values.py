"""Certificates as values: PEM texts, and what a source of them offers."""

import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gpumanager.errors import GpuManagerError


class CertificateTrouble(GpuManagerError):
    """There is no certificate to serve with, or not the one wanted: why, and what to do."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate, or a chain that begins with it, and its key; both PEM.

    callers: the CAs of client certificates, PEM; None: clients have none. A certificate of another
    CA gets no connection; a client without any is up to the server.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    callers: bytes | None = None

    def context(self) -> ssl.SSLContext:
        """Return a server's context; raises CertificateTrouble. The ssl module takes files only."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory(prefix="gm-") as folder:
            files = Path(folder, "tls.crt"), Path(folder, "tls.key")
            for path, content in zip(files, (self.certificate, self.key), strict=True):
                path.touch(0o600)
                path.write_bytes(content)
            try:
                context.load_cert_chain(*files, password="")  # no terminal is asked for one
            except ssl.SSLError as error:
                cause = f"the certificate and its key do not go together: {error}"
                raise CertificateTrouble(cause) from error
        if self.callers is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(cadata=self.callers.decode("ascii"))
            except (ssl.SSLError, ValueError) as error:
                cause = f"the client CA file holds no certificates: {error}"
                raise CertificateTrouble(cause) from error
        return context


class CertificateSource(Protocol):
    """Where a certificate comes from."""

    async def fetch(self, now: datetime) -> KeyPair:
        """Return the one to serve with now; called again and again. Raises GpuManagerError."""
        ...
