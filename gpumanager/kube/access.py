"""Address of the API server and credentials for it: a kubeconfig, or a pod's service account.

What a user can get wrong is checked here, at start and without the `kubernetes` package; reading
certificates, tokens and credentials of other programs is the package's work (`connection`).
"""

import base64
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from gpumanager.errors import GpuManagerError, InputError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST: Final = "KUBERNETES_SERVICE_HOST"
PORT: Final = "KUBERNETES_SERVICE_PORT"
PROXIES: Final = {"http", "https"}
PROVIDERS: Final = {"oidc", "gcp"}
"""Of `auth-provider`, as the package knows them; Kubernetes itself has dropped all of them."""
NOT_SUPPORTED: Final = ("as-uid", "as-groups", "as-user-extra")
DATA: Final = ("certificate-authority-data", "client-certificate-data", "client-key-data")


class NoAccess(GpuManagerError):
    """There is no API server to talk to: neither a kubeconfig nor a service account."""


@dataclass(frozen=True, slots=True)
class Access:
    """One API server and one user of it.

    server: URL, `https://10.0.0.1:443`. kubeconfig: its current context is used. account: folder
    of a service account. token: used instead of theirs.
    """

    server: str
    kubeconfig: Path | None = None
    account: Path | None = None
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.server


def find_access(
    kubeconfig: Path | None,
    environment: Mapping[str, str] = os.environ,
    account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Read the kubeconfig where one is given, else use the pod's service account.

    Raises NoAccess, InputError.
    """
    if kubeconfig is not None:
        return read_kubeconfig(kubeconfig)
    host = environment.get(HOST)
    if not host or not (account / "token").exists():
        raise NoAccess(f"no --kubeconfig is given, and there is no service account in {account}")
    address = f"[{host}]" if ":" in host else host
    return Access(f"https://{address}:{environment.get(PORT) or 443}", account=account)


def read_kubeconfig(path: Path) -> Access:
    """Return the server of its current context; raises InputError for what cannot be used."""
    content = load_kubeconfig(path)
    try:
        context = _named(path, content, "contexts", content["current-context"])["context"]
        cluster = _named(path, content, "clusters", context["cluster"])["cluster"]
        user = _named(path, content, "users", context["user"])["user"]
        for name in NOT_SUPPORTED:
            # The package ignores these: requests would go out as another user.
            if name in user:
                raise InputError(path, f"user: {name} is not supported")
        provider = (user.get("auth-provider") or {}).get("name")
        if provider and provider not in PROVIDERS:
            raise InputError(path, f"user: auth-provider {provider} is not supported; use exec")
        server = urlsplit(cluster["server"])
        for part, name in ((cluster, DATA[0]), (user, DATA[1]), (user, DATA[2])):
            base64.b64decode(part.get(name) or "", validate=True)
        if server.scheme not in PROXIES or not server.hostname or server.port == 0:
            raise InputError(path, f"server {cluster['server']!r}: write http(s)://HOST:PORT")
        if (proxy := cluster.get("proxy-url")) and urlsplit(proxy).scheme not in PROXIES:
            raise InputError(path, f"proxy-url {proxy!r}: only http and https are supported")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(path, f"is no kubeconfig that can be used: {error}") from error
    return Access(cluster["server"].rstrip("/"), kubeconfig=path)


def load_kubeconfig(path: Path) -> Any:
    """Return its content, where every context has a user, if need be without credentials.

    Raises InputError.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise InputError(path, f"cannot be read as a kubeconfig: {error}") from error
    try:
        # Example: kind's and kubectl's test files have `user: null`, or a context without a user;
        # the package stumbles over both (37.0.2: "argument of type 'NoneType' is not iterable").
        users = [{**one, "user": one.get("user") or {}} for one in content.get("users") or ()]
        for one in content.get("contexts") or ():
            if not one["context"].get("user"):
                one["context"]["user"] = ""
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(path, f"is no kubeconfig that can be used: {error}") from error
    return {**content, "users": [*users, {"name": "", "user": {}}]}


def _named(path: Path, content: Any, kind: str, name: str) -> Any:
    found = [one for one in content.get(kind) or () if one["name"] == name]
    if not found:
        raise InputError(path, f"{kind} has no {name!r}")
    return found[0]


def node_name(override: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the name the kubelet registers: --hostname-override, NODE_NAME, or the host's."""
    return override or environment.get("NODE_NAME") or socket.gethostname().lower()
