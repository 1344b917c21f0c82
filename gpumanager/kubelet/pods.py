"""The kubelet's own list of pods, `/pods`: the pods of this node, and what each container asks for.

It lists the pod under admission before the device plugin is called, with its UID and its spec, and
reading it has no side effect (PodResources `List` has: it must not be called during admission).
Only what an allocation needs is read; what cannot be understood is left out, never guessed.
"""

import asyncio
import os
import re
import ssl
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
)
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp

from gpumanager.errors import GpuManagerError, InputError
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.kubelet.pod_list import PodList

T = TypeVar("T")

DEADLINES_AFTER_SUCCESS: Final = 5.0
"""Times the deadline, for a kubelet that answered the last time: pods may have come since."""
SLOWER: Final = 3.0
"""Times what an answer took to begin: it may take so long the next time."""
LONGEST_PATIENCE: Final = 2.0
"""Seconds until an answer has to begin, however slow the last one was: the kubelet waits for us."""
LONGEST_SECONDS: Final = 10.0
"""For the whole answer."""
LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}
_BUILD: Final = re.compile(
    rb'^kubernetes_build_info\{[^}]*git_version="([^"]{1,100})"', re.MULTILINE
)


class PodsUnavailable(GpuManagerError):
    """The kubelet could not be asked or understood: which address was asked, and why not."""

    def __init__(self, source: str, cause: str) -> None:
        super().__init__(f"{source}: cannot read the kubelet's pods: {cause}")


class PodsSource(Protocol):
    """Where the allocator looks for pods."""

    async def pods(self) -> tuple[PodView, ...]:
        """List all pods of the node; raises PodsUnavailable. The source bounds its time."""


@dataclass(slots=True)
class _Answer:
    """How far it has come. at: when the last of it came, or it was asked for; monotonic."""

    at: float = field(default_factory=time.monotonic)
    begun: bool = False
    abandoned: bool = False


class KubeletPods:
    """Reads `<endpoint>/pods` by HTTP or HTTPS, without proxies.

    deadline: seconds without a byte of the answer after which it is left. A kubelet that answered
    the last time has five times as long, or three times what it took then to begin: tenants make
    the list long.
    token: file with a bearer token, read anew for each call; one that is absent is left out.
    By HTTPS only a kubelet on this very host is believed: its certificate is usually its own.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: Path | None = None,
        deadline: float = 0.2,
    ) -> None:
        url = urlsplit(endpoint)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise InputError(endpoint, "is not a kubelet endpoint; write http(s)://HOST:PORT")
        if url.scheme == "https" and url.hostname not in LOOPBACK:
            raise InputError(endpoint, "a kubelet on another host needs its certificate authority")
        self._endpoint = endpoint
        self._token = token
        self._tls = _unverified() if url.scheme == "https" else True
        self._deadline = deadline
        self._patience = DEADLINES_AFTER_SUCCESS * deadline
        """Seconds without a byte of an answer, until it begins and then."""
        self._late: asyncio.Future[Any] | None = None
        """An abandoned answer: when it begins it sets how long to wait the next time."""
        self._list = PodList(_listed)

    async def pods(self) -> tuple[PodView, ...]:
        return await self._get("/pods", partial(parse_pods, known=self._list))

    async def version(self) -> str:
        """Read `v1.36.2` from the metrics, which not every token may; raises PodsUnavailable."""
        return await self._get("/metrics", parse_version)

    async def _get(self, path: str, parse: "Parse[T]") -> T:
        answer = _Answer()
        reading = asyncio.create_task(self._read(path, parse, answer))
        try:
            await self._wait_until_read(reading, answer)
            return reading.result()
        except TimeoutError:
            answer.abandoned = True
            self._late = reading
            # Its exception is retrieved, so that asyncio does not log it.
            reading.add_done_callback(lambda late: late.cancelled() or late.exception())
            cause = f"no answer within {self._patience:g} s"
            self._patience = self._deadline  # unless this answer comes after all
            raise PodsUnavailable(self._endpoint, cause) from None
        except (aiohttp.ClientError, OSError) as error:
            cause = str(error)
            if isinstance(error, OSError) and not isinstance(error, aiohttp.ClientSSLError):
                # "Connection refused" instead of the sentence in which aiohttp wraps it. Unknown
                # names have numbers of their own, below 0, as TLS errors have theirs.
                errno = error.errno or 0
                cause = os.strerror(errno) if errno > 0 else cause
            raise PodsUnavailable(self._endpoint, cause or type(error).__name__) from error
        except asyncio.CancelledError:
            reading.cancel()
            raise

    async def _wait_until_read(self, reading: "asyncio.Task[T]", answer: "_Answer") -> None:
        """Raise TimeoutError where no byte comes for too long."""
        while not reading.done():
            left = answer.at + self._patience - time.monotonic()
            if left <= 0:
                raise TimeoutError
            await asyncio.wait((reading,), timeout=left)

    async def _read(self, path: str, parse: "Parse[T]", answer: "_Answer") -> T:
        """Read and parse an answer. An abandoned one goes on until it begins, one at a time."""
        alone = self._late is None or self._late.done()
        silence = LONGEST_PATIENCE if alone else self._patience
        bounds = aiohttp.ClientTimeout(LONGEST_SECONDS, sock_connect=silence, sock_read=silence)
        url, headers = self._endpoint.rstrip("/") + path, {"Accept-Encoding": "identity"}
        try:
            if self._token is not None and self._token.exists():
                headers["Authorization"] = f"Bearer {self._token.read_text().strip()}"
        except (OSError, ValueError) as error:
            raise PodsUnavailable(self._endpoint, f"{self._token}: {error}") from error
        began = time.monotonic()
        async with (
            aiohttp.ClientSession(timeout=bounds, cookie_jar=aiohttp.DummyCookieJar()) as kubelet,
            kubelet.get(url, headers=headers, ssl=self._tls, allow_redirects=False) as response,
        ):
            if response.status != HTTPStatus.OK:
                cause = f"status {response.status} {response.reason}"
                if response.status == HTTPStatus.UNAUTHORIZED:
                    cause += f": it does not believe the token of {self._token or 'nobody'}"
                elif response.status == HTTPStatus.FORBIDDEN:
                    cause += ": the agent's role needs `get` on nodes/proxy or nodes/pods"
                raise PodsUnavailable(self._endpoint, cause)
            chunks = self._note_progress(response.content.iter_any(), answer, began)
            return await parse(chunks, self._endpoint)

    async def _note_progress(
        self, chunks: AsyncIterable[bytes], answer: "_Answer", began: float
    ) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            answer.at = time.monotonic()
            if not answer.begun:
                answer.begun = True
                usual = max(DEADLINES_AFTER_SUCCESS * self._deadline, SLOWER * (answer.at - began))
                self._patience = min(usual, LONGEST_PATIENCE)
            if answer.abandoned:
                raise TimeoutError
            yield chunk


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no authorities are read
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


Parse = Callable[[AsyncIterable[bytes], str], Awaitable[T]]
"""Makes something of a body and the name of its source; raises PodsUnavailable."""


async def parse_pods(
    body: AsyncIterable[bytes],
    source: str = "/pods",
    known: "PodList[PodView | None] | None" = None,
) -> tuple[PodView, ...]:
    """Parse the pods of a JSON PodList; raises PodsUnavailable where it is none.

    body: in pieces. known: by earlier lists. Raises what `body` raises of the connection.
    """
    try:
        found = await (known or PodList(_listed)).parse(body)
        return tuple(pod for pod in found if pod is not None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PodsUnavailable(source, f"not a list of pods ({error})") from error


async def parse_version(metrics: AsyncIterable[bytes], source: str = "/metrics") -> str:
    """Parse the version in a kubelet's metrics; raises PodsUnavailable without one."""
    found = _BUILD.search(b"".join([piece async for piece in metrics]))
    if found is None:
        raise PodsUnavailable(source, "its metrics do not name its version")
    return found[1].decode(errors="replace")


def _listed(item: Any) -> PodView | None:
    """Return None for a pod without a UID, which cannot be identified."""
    return read_pod(item) if item["metadata"].get("uid") else None
