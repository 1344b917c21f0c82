"""Where the API server is and how it knows us: a kubeconfig, or a pod's service account.

Everything that rotates (the service account's token, certificates in files) is looked at anew for
each request.
"""

import base64
import os
import socket
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gpumanager.cluster.http import Peer
from gpumanager.errors import GpuManagerError, InputError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST: Final = "KUBERNETES_SERVICE_HOST"
PORT: Final = "KUBERNETES_SERVICE_PORT"
PORTS: Final = {"http": 80, "https": 443}
NOT_SUPPORTED: Final = ("exec", "auth-provider", "username", "impersonate-user", "as")


class NoAccess(GpuManagerError):
    """There is no API server to talk to: neither a kubeconfig nor a service account."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files, or their contents where a kubeconfig carries them itself.

    authority: of the server; None: the system's. certificate, key: ours, for a server that wants
    them. verify: False believes any server.
    """

    authority: Path | bytes | None = None
    certificate: Path | bytes | None = None
    key: Path | bytes | None = field(default=None, repr=False)
    verify: bool = True

    def state(self) -> tuple[int, ...]:
        """Changes when one of the files does."""
        parts = (self.authority, self.certificate, self.key)
        return tuple(part.stat().st_mtime_ns for part in parts if isinstance(part, Path))

    def context(self) -> ssl.SSLContext:
        """Raises OSError, ssl.SSLError among them."""
        authority = self.authority
        if isinstance(authority, bytes):
            context = ssl.create_default_context(cadata=authority.decode())
        else:
            context = ssl.create_default_context(cafile=authority)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            _load(context, self.certificate, self.key)
        return context


def _load(context: ssl.SSLContext, certificate: Path | bytes, key: Path | bytes | None) -> None:
    """The ssl module takes a client's certificate from files only."""
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:
        context.load_cert_chain(_as_file(certificate, folder), key and _as_file(key, folder))


def _as_file(content: Path | bytes, folder: str) -> Path:
    if isinstance(content, Path):
        return content
    descriptor, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return Path(name)


@dataclass(slots=True)
class Access:
    """One API server and one user of it.

    prefix: path before `/api`. token: the bearer token, or a file that holds it.
    """

    host: str
    port: int
    prefix: str = ""
    certificates: Certificates | None = None
    server_name: str | None = None
    token: str | Path | None = field(default=None, repr=False)
    _context: ssl.SSLContext | None = field(default=None, repr=False)
    _state: tuple[int, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        scheme = "https" if self.certificates else "http"
        return f"{scheme}://{Peer(self.host, self.port).authority}{self.prefix}"

    def peer(self) -> Peer:
        """Raises OSError where certificates cannot be read."""
        if self.certificates and (
            self._context is None or self.certificates.state() != self._state
        ):
            self._state = self.certificates.state()
            self._context = self.certificates.context()
        return Peer(self.host, self.port, self._context, self.server_name)

    def headers(self) -> dict[str, str]:
        """Who we are; raises OSError where the token cannot be read."""
        token = self.token.read_text() if isinstance(self.token, Path) else self.token
        return {"Authorization": f"Bearer {token.strip()}"} if token else {}


def find_access(
    kubeconfig: Path | None,
    environment: Mapping[str, str] = os.environ,
    account: Path = SERVICE_ACCOUNT,
) -> Access:
    """By the kubeconfig where one is given, else as a pod does; raises NoAccess, InputError."""
    if kubeconfig is not None:
        return read_kubeconfig(kubeconfig)
    host, token = environment.get(HOST), account / "token"
    if not host or not token.exists():
        raise NoAccess(f"no --kubeconfig is given, and there is no service account in {account}")
    authority = account / "ca.crt"
    return Access(
        host=host,
        port=int(environment.get(PORT) or PORTS["https"]),
        certificates=Certificates(authority if authority.exists() else None),
        token=token,
    )


def read_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig; raises InputError."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InputError(path, f"cannot be read as a kubeconfig: {error}") from error
    try:
        return _access(path, content)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(path, f"is no kubeconfig that can be used: {error}") from error


def _access(path: Path, content: Any) -> Access:
    context = _named(path, content, "contexts", content["current-context"])["context"]
    cluster = _named(path, content, "clusters", context["cluster"])["cluster"]
    user = _named(path, content, "users", context["user"])["user"] if "user" in context else {}
    user = user or {}
    for name in NOT_SUPPORTED:
        if name in user:
            raise InputError(path, f"user: {name} is not supported; give a token or a certificate")
    url = urlsplit(cluster["server"])
    if url.scheme not in PORTS or not url.hostname:
        raise InputError(path, f"server {cluster['server']!r}: write http(s)://HOST:PORT")
    if cluster.get("proxy-url"):
        raise InputError(path, "cluster: proxy-url is not supported")
    token_file = user.get("tokenFile")
    return Access(
        host=url.hostname,
        port=url.port or PORTS[url.scheme],
        prefix=url.path.rstrip("/"),
        certificates=_certificates(path, cluster, user) if url.scheme == "https" else None,
        server_name=cluster.get("tls-server-name"),
        token=path.parent / token_file if token_file else user.get("token"),
    )


def _certificates(path: Path, cluster: Any, user: Any) -> Certificates:
    return Certificates(
        authority=_file_or_content(path, cluster, "certificate-authority"),
        certificate=_file_or_content(path, user, "client-certificate"),
        key=_file_or_content(path, user, "client-key"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
    )


def _file_or_content(path: Path, fields: Any, name: str) -> Path | bytes | None:
    """What is carried wins over a file; a relative file lies beside the kubeconfig."""
    if content := fields.get(f"{name}-data"):
        return base64.b64decode(content, validate=True)
    return path.parent / fields[name] if fields.get(name) else None


def _named(path: Path, content: Any, kind: str, name: str) -> Any:
    found = [one for one in content.get(kind) or () if one["name"] == name]
    if not found:
        raise InputError(path, f"{kind} has no {name!r}")
    return found[0]


def node_name(override: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """As the kubelet is registered: --hostname-override, NODE_NAME, or the host's name."""
    return override or environment.get("NODE_NAME") or socket.gethostname().lower()
