"""One GET of another part of the project; the whole answer within some seconds."""

import asyncio
import os
import ssl
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from gpumanager.errors import InputError

MOST_BYTES: Final = 16 << 20

BROKEN: Final = (OSError, ValueError, aiohttp.ClientError)
"""What `get` raises where there is no answer; TimeoutError is one of them."""


def check(url: str, flag: str) -> str:
    """Return the URL, where it is one of a server; raises InputError, which names the flag."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise InputError(flag, f"{url!r}: write http://HOST:PORT or https://HOST:PORT")
    return url


def get(url: str, path: str, *, seconds: float, authority: Path | None = None) -> tuple[int, bytes]:
    """Return status and body. authority: the CA of the server; None: those of the system.

    Not from within a running loop. Raises BROKEN.
    """

    async def ask() -> tuple[int, bytes]:
        tls = ssl.create_default_context(cafile=authority) if url.startswith("https:") else True
        body = bytearray()
        async with (
            asyncio.timeout(seconds),
            aiohttp.ClientSession(headers={"Accept-Encoding": "identity"}) as session,
            session.get(url.rstrip("/") + path, ssl=tls, allow_redirects=False) as answer,
        ):
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > MOST_BYTES:
                    raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
            return answer.status, bytes(body)

    return asyncio.run(ask())


def cause(error: BaseException, seconds: float) -> str:
    """Return why there was no answer, in a few words."""
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(error, aiohttp.ClientSSLError):
        return str(error)  # its errno is OpenSSL's
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
