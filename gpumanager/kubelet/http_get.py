"""One GET at the kubelet, by HTTP or HTTPS, without proxies and bounded in time."""

import http.client
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult

BODY_LIMIT: Final = 64 << 20
CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked, and how. deadline: seconds for each piece of the answer.

    longest: seconds for all of them.
    """

    url: SplitResult
    tls: ssl.SSLContext | None
    headers: Mapping[str, str]
    deadline: float
    longest: float


class NotOK(Exception):
    """An answer of another status than 200."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"status {status} {reason}")
        self.status = status


def get(target: Target, path: str) -> Iterator[bytes]:
    """The body, in pieces as they come; at the end all of it has come.

    Raises NotOK, OSError, TimeoutError, and ValueError for what is no HTTP.
    """
    until = time.monotonic() + target.longest
    with closing(_connection(target)) as connection:
        try:
            connection.request("GET", target.url.path.rstrip("/") + path, headers=target.headers)
            with connection.getresponse() as response:
                if response.status != http.client.OK:
                    raise NotOK(response.status, response.reason)
                while chunk := response.read1(CHUNK):
                    yield chunk
                    if time.monotonic() > until:
                        raise TimeoutError
                if response.length:
                    raise ValueError("the answer ends in its middle")
        except http.client.HTTPException as error:
            raise ValueError(str(error) or type(error).__name__) from error


def _connection(target: Target) -> http.client.HTTPConnection:
    host, port = target.url.hostname or "", target.url.port
    if target.tls is None:
        return http.client.HTTPConnection(host, port, timeout=target.deadline)
    return http.client.HTTPSConnection(host, port, timeout=target.deadline, context=target.tls)


def read_body(response: http.client.HTTPResponse, until: float, most: int = BODY_LIMIT) -> bytes:
    """The whole body; a peer that drips bytes is left at the deadline.

    until: by time.monotonic(). most: bytes. Raises TimeoutError, ValueError and OSError.
    """
    body = bytearray()
    while chunk := response.read1(CHUNK):
        body += chunk
        if time.monotonic() > until:
            raise TimeoutError
        if len(body) > most:
            raise ValueError(f"an answer of more than {most} bytes")
    return bytes(body)
