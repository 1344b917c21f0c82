"""One question over HTTP to another part of the project; the whole answer within some seconds."""

import http.client
import ssl
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gpumanager.errors import InputError
from gpumanager.kubelet.http_get import read_body

MOST_BYTES: Final = 16 << 20

BROKEN: Final = (OSError, ValueError, http.client.HTTPException)
"""What `get` raises where there is no answer; TimeoutError is one of them."""


def check(url: str, flag: str) -> str:
    """The URL, where it is one of a server; raises InputError, which names the flag."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise InputError(flag, f"{url!r}: write http://HOST:PORT or https://HOST:PORT")
    return url


def get(url: str, path: str, *, seconds: float, authority: Path | None = None) -> tuple[int, bytes]:
    """Status and body. authority: who certified the server; None: whom the system trusts.

    Raises BROKEN.
    """
    until = time.monotonic() + seconds
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=authority)
        connection = http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=seconds)
    try:
        connection.request("GET", parts.path.rstrip("/") + path)
        answer = connection.getresponse()
        return answer.status, read_body(answer, until, MOST_BYTES)
    finally:
        connection.close()


def cause(error: BaseException, seconds: float) -> str:
    """Why there was no answer, in a few words."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
