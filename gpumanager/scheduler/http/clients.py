"""Which client certificates are accepted, and the response without one.

A client without a certificate passes the TLS handshake, because the kubelet's probes have none; the
path decides then. A certificate that no configured CA has signed fails the handshake.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

PROBES: Final = frozenset({"/healthz", "/readyz", "/version"})
NAMES: Final = {"commonName", "DNS"}


@dataclass(frozen=True, slots=True)
class Clients:
    """names: common names, or DNS names, of which a caller's certificate has one; empty: any that
    the authority has signed. pages: whether any client may read, and only decisions need a
    certificate.
    """

    names: frozenset[str] = frozenset()
    pages: bool = False

    def admits(self, transport: asyncio.BaseTransport | None) -> bool:
        """Return whether the caller at the other end may send any request."""
        certificate = transport.get_extra_info("peercert") if transport else None
        if not certificate:
            return False
        return not self.names or not self.names.isdisjoint(names_of(certificate))

    def opens(self, method: str, path: str) -> bool:
        """Return whether a request needs no certificate."""
        return method in {"GET", "HEAD"} and (self.pages or path in PROBES)


def names_of(certificate: Any) -> Iterator[str]:
    """Yield the names of a certificate as the ssl module returns it."""
    pairs = [pair for pairs in certificate.get("subject", ()) for pair in pairs]
    pairs += certificate.get("subjectAltName", ())
    return (name for kind, name in pairs if kind in NAMES)
