"""The kubelet's own list of pods, `/pods`: who is on this node, and what each container asks for.

It lists the pod under admission before the device plugin is called, with its UID and its spec, and
reading it has no side effect (PodResources `List` has: it must not be called during admission).
Only what an allocation needs is read; what cannot be understood is left out, never guessed.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from gpumanager.errors import GpuManagerError, InputError
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.kubelet.pod_list import PodList

if TYPE_CHECKING:
    from gpumanager.kubelet.http_get import NotOK

T = TypeVar("T")

UNTIL_DOUBTED: Final = 5.0
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
    """The kubelet could not be asked or understood: whom we asked, and why not."""

    def __init__(self, source: str, cause: str) -> None:
        super().__init__(f"{source}: cannot read the kubelet's pods: {cause}")


class PodsSource(Protocol):
    """Where the allocator looks for pods."""

    async def pods(self) -> tuple[PodView, ...]:
        """All pods of the node; raises PodsUnavailable. Bounded in time by the source."""


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
    certificate: authority of the kubelet's certificate; None: only a kubelet on this very host is
    believed without (its certificate is usually its own).
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: Path | None = None,
        certificate: Path | None = None,
        deadline: float = 0.2,
    ) -> None:
        url = urlsplit(endpoint)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise InputError(endpoint, "is not a kubelet endpoint; write http(s)://HOST:PORT")
        if url.scheme == "https" and certificate is None and url.hostname not in LOOPBACK:
            raise InputError(endpoint, "a kubelet on another host needs its certificate authority")
        self._url = url
        self._endpoint = endpoint
        self._token = token
        self._tls = _tls(certificate) if url.scheme == "https" else None
        self._deadline = deadline
        self._patience = UNTIL_DOUBTED * deadline
        """Seconds without a byte of an answer, until it begins and then."""
        self._late: asyncio.Future[Any] | None = None
        """An answer that nobody waits for any more: it tells how long to wait the next time."""
        self._list = PodList(_listed)

    async def pods(self) -> tuple[PodView, ...]:
        return await self._get("/pods", self._parse)

    def _parse(self, body: Iterable[bytes], source: str) -> tuple[PodView, ...]:
        return parse_pods(body, source, self._list)

    async def version(self) -> str:
        """`v1.36.2`, by its metrics, which not every token may read; raises PodsUnavailable."""
        return await self._get("/metrics", parse_version)

    async def _get(self, path: str, parse: Callable[[Iterable[bytes], str], T]) -> T:
        answer = _Answer()
        reading = asyncio.ensure_future(asyncio.to_thread(self._read, path, parse, answer))
        try:
            await self._progress(reading, answer)
            return reading.result()
        except TimeoutError:
            answer.abandoned = True
            self._late = reading
            reading.add_done_callback(_forget)
            cause = f"no answer within {self._patience:g} s"
            self._patience = self._deadline  # unless this answer comes after all
            raise PodsUnavailable(self._endpoint, cause) from None
        except (OSError, ValueError) as error:
            raise PodsUnavailable(self._endpoint, str(error) or type(error).__name__) from error

    async def _progress(self, reading: "asyncio.Future[T]", answer: "_Answer") -> None:
        """Until it is done; raises TimeoutError where no byte comes for too long."""
        while not reading.done():
            left = answer.at + self._patience - time.monotonic()
            if left <= 0:
                raise TimeoutError
            await asyncio.wait((reading,), timeout=left)

    def _read(self, path: str, parse: Callable[[Iterable[bytes], str], T], answer: "_Answer") -> T:
        """In a thread. When it is left it goes on until the answer begins, one such at a time."""
        from gpumanager.kubelet import http_get  # with what it needs, not before it is needed

        alone = self._late is None or self._late.done()
        deadline = LONGEST_PATIENCE if alone else self._patience
        target = http_get.Target(self._url, self._tls, self._headers(), deadline, LONGEST_SECONDS)
        try:
            return parse(self._noting(http_get.get(target, path), answer), self._endpoint)
        except http_get.NotOK as refused:
            raise ValueError(self._refusal(refused)) from refused

    def _noting(self, chunks: Iterator[bytes], answer: "_Answer") -> Iterator[bytes]:
        began = time.monotonic()
        for chunk in chunks:
            answer.at = time.monotonic()
            if not answer.begun:
                answer.begun = True
                usual = max(UNTIL_DOUBTED * self._deadline, SLOWER * (answer.at - began))
                self._patience = min(usual, LONGEST_PATIENCE)
            if answer.abandoned:
                raise TimeoutError
            yield chunk

    def _refusal(self, answer: "NotOK") -> str:
        match answer.status:
            case HTTPStatus.UNAUTHORIZED:
                return f"{answer}: it does not believe the token of {self._token or 'nobody'}"
            case HTTPStatus.FORBIDDEN:
                return f"{answer}: the agent's role needs `get` on nodes/proxy or nodes/pods"
        return str(answer)

    def _headers(self) -> dict[str, str]:
        if self._token is None or not self._token.exists():
            return {}
        return {"Authorization": f"Bearer {self._token.read_text().strip()}"}


def _forget(reading: "asyncio.Future[Any]") -> None:
    """What becomes of it matters to nobody."""
    if not reading.cancelled():
        reading.exception()


def _tls(certificate: Path | None) -> ssl.SSLContext:
    if certificate is not None:
        return ssl.create_default_context(cafile=certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nobody is believed: no authorities are read
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def parse_pods(
    body: Iterable[bytes], source: str = "/pods", known: "PodList[PodView | None] | None" = None
) -> tuple[PodView, ...]:
    """Pods of a JSON PodList; raises PodsUnavailable where it is none.

    body: in pieces. known: by earlier lists. Raises what `body` raises of the connection.
    """
    try:
        found = (known or PodList(_listed)).parse(body)
        return tuple(pod for pod in found if pod is not None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PodsUnavailable(source, f"not a list of pods ({error})") from error


def parse_version(metrics: Iterable[bytes], source: str = "/metrics") -> str:
    """Of a kubelet's metrics; raises PodsUnavailable where they do not tell."""
    found = _BUILD.search(b"".join(metrics))
    if found is None:
        raise PodsUnavailable(source, "its metrics do not tell its version")
    return found[1].decode(errors="replace")


def _listed(item: Any) -> PodView | None:
    """None for one without a UID: nothing can be said of it."""
    return read_pod(item) if item["metadata"].get("uid") else None
