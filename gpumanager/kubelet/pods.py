"""The kubelet's own list of pods, `/pods`: who is on this node, and what each container asks for.

It lists the pod under admission before the device plugin is called, with its UID and its spec, and
reading it has no side effect (PodResources `List` has: it must not be called during admission).
Only what an allocation needs is read; what cannot be understood is left out, never guessed.
"""

import asyncio
import http.client
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, NewType, Protocol, TypeVar
from urllib.parse import urlsplit

from gpumanager.errors import GpuManagerError, InputError
from gpumanager.kubelet.pod_list import PodList
from gpumanager.names import VCORE, VMEMORY

PodUID = NewType("PodUID", str)
T = TypeVar("T")

LOOPBACK: Final = {"127.0.0.1", "::1", "localhost"}
BODY_LIMIT: Final = 64 << 20
CHUNK: Final = 1 << 16
_BUILD: Final = re.compile(
    rb'^kubernetes_build_info\{[^}]*git_version="([^"]{1,100})"', re.MULTILINE
)


class PodsUnavailable(GpuManagerError):
    """The kubelet could not be asked or understood: whom we asked, and why not."""

    def __init__(self, source: str, cause: str) -> None:
        super().__init__(f"{source}: cannot read the kubelet's pods: {cause}")


class ContainerKind(Enum):
    """In which of the pod's lists a container stands; a sidecar is an init container that stays."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What one container asks for. cores, blocks: 0 for nothing, None where not understood."""

    name: str
    kind: ContainerKind
    cores: int | None
    blocks: int | None


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod as the kubelet lists it. containers: in the order of admission, init first."""

    uid: PodUID
    namespace: str
    name: str
    phase: str
    terminating: bool
    annotations: Mapping[str, str]
    containers: tuple[ContainerView, ...]

    @property
    def ended(self) -> bool:
        """It will never run again: its devices are free."""
        return self.phase in {"Succeeded", "Failed"}


class PodsSource(Protocol):
    """Where the allocator looks for pods."""

    async def pods(self) -> tuple[PodView, ...]:
        """All pods of the node; raises PodsUnavailable. Bounded in time by the source."""


class KubeletPods:
    """Reads `<endpoint>/pods` by HTTP or HTTPS, without proxies, within `deadline` seconds.

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
        self._list = PodList(_listed)

    async def pods(self) -> tuple[PodView, ...]:
        return await self._get("/pods", self._parse)

    def _parse(self, body: bytes, source: str) -> tuple[PodView, ...]:
        return parse_pods(body, source, self._list)

    async def version(self) -> str:
        """`v1.36.2`, by its metrics, which not every token may read; raises PodsUnavailable."""
        return await self._get("/metrics", parse_version)

    async def _get(self, path: str, parse: Callable[[bytes, str], T]) -> T:
        reading = asyncio.to_thread(self._read, path, parse)
        try:
            return await asyncio.wait_for(reading, self._deadline)
        except TimeoutError:
            cause = f"no answer within {self._deadline:g} s"
            raise PodsUnavailable(self._endpoint, cause) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise PodsUnavailable(self._endpoint, str(error) or type(error).__name__) from error

    def _read(self, path: str, parse: Callable[[bytes, str], T]) -> T:
        until = time.monotonic() + self._deadline
        with closing(self._connection()) as connection:
            place = self._url.path.rstrip("/") + path
            connection.request("GET", place, headers=self._headers())
            with connection.getresponse() as response:
                if response.status != http.client.OK:
                    raise ValueError(self._refusal(response))
                return parse(_body(response, until), self._endpoint)

    def _refusal(self, response: http.client.HTTPResponse) -> str:
        said = f"status {response.status} {response.reason}"
        match response.status:
            case http.client.UNAUTHORIZED:
                return f"{said}: it does not believe the token of {self._token or 'nobody'}"
            case http.client.FORBIDDEN:
                return f"{said}: the agent's role needs `get` on nodes/proxy or nodes/pods"
        return said

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=self._deadline)
        return http.client.HTTPSConnection(host, port, timeout=self._deadline, context=self._tls)

    def _headers(self) -> dict[str, str]:
        if self._token is None or not self._token.exists():
            return {}
        return {"Authorization": f"Bearer {self._token.read_text().strip()}"}


def _tls(certificate: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate)
    if certificate is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _body(response: http.client.HTTPResponse, until: float) -> bytes:
    """The whole body; a peer that drips bytes is left at the deadline."""
    body = bytearray()
    while chunk := response.read1(CHUNK):
        body += chunk
        if time.monotonic() > until:
            raise TimeoutError
        if len(body) > BODY_LIMIT:
            raise ValueError(f"more than {BODY_LIMIT} bytes")
    return bytes(body)


def parse_pods(
    body: bytes, source: str = "/pods", known: "PodList[PodView | None] | None" = None
) -> tuple[PodView, ...]:
    """Pods of a JSON PodList; raises PodsUnavailable where it is none. known: by earlier texts."""
    try:
        found = (known or PodList(_listed)).parse(body)
        return tuple(pod for pod in found if pod is not None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PodsUnavailable(source, f"not a list of pods ({error})") from error


def parse_version(metrics: bytes, source: str = "/metrics") -> str:
    """Of a kubelet's metrics; raises PodsUnavailable where they do not tell."""
    found = _BUILD.search(metrics)
    if found is None:
        raise PodsUnavailable(source, "its metrics do not tell its version")
    return found[1].decode(errors="replace")


def _listed(item: Any) -> PodView | None:
    """None for one without a UID: nothing can be said of it."""
    return read_pod(item) if item["metadata"].get("uid") else None


def read_pod(item: Any) -> PodView:
    """A pod of its JSON object; raises KeyError, TypeError, AttributeError where it is none."""
    metadata, status = item["metadata"], item.get("status") or {}
    return PodView(
        uid=PodUID(metadata["uid"]),
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        phase=status.get("phase", "Pending"),
        terminating=bool(metadata.get("deletionTimestamp")),
        annotations=dict(metadata.get("annotations") or {}),
        containers=tuple(_containers(item.get("spec") or {})),
    )


def _containers(spec: Any) -> Iterator[ContainerView]:
    for container in spec.get("initContainers") or []:
        sidecar = container.get("restartPolicy") == "Always"
        yield _container(container, ContainerKind.SIDECAR if sidecar else ContainerKind.INIT)
    for container in spec.get("containers") or []:
        yield _container(container, ContainerKind.APP)


def _container(container: Any, kind: ContainerKind) -> ContainerView:
    limits = (container.get("resources") or {}).get("limits") or {}
    return ContainerView(
        container["name"], kind, _quantity(limits.get(VCORE, 0)), _quantity(limits.get(VMEMORY, 0))
    )


def _quantity(value: Any) -> int | None:
    """A whole number of devices; Kubernetes writes `30` and, for thousands, `1k`."""
    text = str(value).strip()
    scale = 1000 if text.endswith("k") else 1
    digits = text.removesuffix("k")
    return int(digits) * scale if digits.isascii() and digits.isdigit() else None
