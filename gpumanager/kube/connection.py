"""A connection to an API server, by the `kubernetes` package's own client.

TLS, proxies, OIDC, the programs that kubeconfigs name (`exec`), and HTTP itself are the package's.
Added here is what it leaves out: tokens in files are read for each request, a change of the
kubeconfig or of a certificate ends the connection, a peer that vanished is noticed within a minute.

This is the one module that imports `kubernetes` (0.2 s of processor time and 20 MiB beside aiohttp,
which the kubelet must not wait for: `client` imports it at the first request, in a thread).
"""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import OpenApiException
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.kube_config import KubeConfigLoader

from gpumanager.kube.access import Access, load_kubeconfig
from gpumanager.kube.errors import ApiUnavailable

TOKEN: Final = "BearerToken"  # noqa: S105 - the package's name of the header
BUFFER: Final = 8 << 20
"""Bytes; a line of a watch may be twice as long. etcd takes objects of 1.5 MiB."""
KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Connection:
    """One session with one API server. `open` makes it."""

    def __init__(self, access: Access, loader: Any, configuration: Any, agent: str) -> None:
        self._access = access
        self._loader = loader
        self._configuration = configuration
        self._seen = _files(access, configuration)
        self._client = ApiClient(configuration)
        self._client.rest_client = _Rest(configuration)
        self._client.user_agent = agent
        user = getattr(loader, "_user", None)
        if user and user.safe_get("as"):
            self._client.set_default_header("Impersonate-User", user["as"])

    @classmethod
    async def open(cls, access: Access, agent: str) -> "Connection":
        """Connect. Raises InputError, ApiUnavailable, OSError."""
        # HTTPS_PROXY and NO_PROXY, as with kubectl. A kubeconfig's own proxy comes before them.
        url = urlsplit(access.server)
        proxy = None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
        configuration = Configuration(
            host=access.server,
            proxy=proxy,
            # With it aiohttp reads ~/.netrc twice for each request, in threads: 1 to 2 ms of
            # processor time; and a machine's entry there refuses a request that has a token.
            client_session_kwargs={"read_bufsize": BUFFER, "trust_env": False},
        )
        loader = None
        if access.kubeconfig is not None:
            base = str(access.kubeconfig.absolute().parent)
            loader = KubeConfigLoader(load_kubeconfig(access.kubeconfig), config_base_path=base)
            await _load(access, loader, configuration)
        elif access.account is not None:
            authority = access.account / "ca.crt"
            configuration.ssl_ca_cert = str(authority) if authority.exists() else None
            _read_token_from(access.account / "token", configuration)
        if access.token:
            configuration.refresh_api_key_hook = None
            configuration.cert_file = configuration.key_file = None
            configuration.api_key[TOKEN] = f"Bearer {access.token}"
        return cls(access, loader, configuration, agent)

    async def renew(self) -> None:
        """Fetch credentials again if they have expired. Raises as `open`."""
        if self._loader is not None and not self._access.token:
            await _load(self._access, self._loader, self._configuration)

    @property
    def current(self) -> bool:
        """Return False once a file that it was made of has changed."""
        return _files(self._access, self._configuration) == self._seen

    @asynccontextmanager
    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: Any, seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer, of any status, its body not read. Raises ApiUnavailable, OSError."""
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            _, url, fields, content, _ = await self._client.param_serialize(
                method, target, header_params=dict(headers), body=body, auth_settings=[TOKEN]
            )
            answer = await self._client.call_api(
                method, url, fields, content, _request_timeout=timeout
            )
            async with answer.response as response:
                yield response
        except (aiohttp.ClientError, OpenApiException) as error:
            raise ApiUnavailable(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        await self._client.close()


class _Rest(RESTClientObject):  # type: ignore[misc]
    """The package's, over sockets that notice when the peer has vanished."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, socket_factory=_watched_socket
        )


def _watched_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for level, option, value in KEEP_ALIVE:
        made.setsockopt(level, option, value)
    return made


async def _load(access: Access, loader: Any, configuration: Any) -> None:
    """Load the kubeconfig by the package, which knows what has expired."""
    try:
        await loader.load_and_set(configuration)
        # The file wins over `token`, as with kubectl, and is read anew for each request.
        user = getattr(loader, "_user", None)
        if user and user.safe_get("tokenFile") and access.kubeconfig:
            _read_token_from(access.kubeconfig.parent / user["tokenFile"], configuration)
        program = user.safe_get("exec") if user else None
    except Exception as error:  # the package raises what comes: TypeError, ConfigException, …
        raise ApiUnavailable(f"{access.kubeconfig}: {error}") from error
    if program and TOKEN not in configuration.api_key and not configuration.cert_file:
        # The package logs why an exec program failed, and would go on anonymously.
        command = program.get("command")
        raise ApiUnavailable(f"{access.kubeconfig}: user: exec {command!r} gave no credentials")


def _read_token_from(path: Path, configuration: Any) -> None:
    """Read it for each request: kubelets and operators write new tokens into the file."""
    # The package asks for a token anew only where it has one already; else it goes on anonymously.

    def read(current: Any) -> None:
        current.api_key[TOKEN] = f"Bearer {path.read_text().strip()}"

    read(configuration)
    configuration.refresh_api_key_hook = read


def _files(access: Access, configuration: Any) -> dict[Path, int]:
    """Return when each was changed; 0 for one that does not exist at this moment."""
    names = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    files = [Path(one) for one in (access.kubeconfig, *names) if one]
    return {one: one.stat().st_mtime_ns if one.exists() else 0 for one in files}
