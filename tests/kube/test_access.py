"""Where the API server is, and how it knows us."""

import asyncio
import base64
import os
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from gpumanager.errors import InputError
from gpumanager.kube.access import (
    Access,
    NoAccess,
    find_access,
    node_name,
    read_kubeconfig,
)
from gpumanager.kube.client import RENEW_SECONDS, KubeClient
from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.in_memory import ManualClock
from tests.kube.api_world import ApiWorld
from tests.kube.kube_clients import client_of, close_clients, opened

pytest_plugins = ["tests.kube.api_fixtures"]


def config(cluster: Any, user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "other", "cluster": {}}, {"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def written(folder: Path, content: Any) -> Path:
    path = folder / "kubeconfig"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of its own for 127.0.0.1, and its key beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    path, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=api"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:api.example"]
    places = ["-keyout", str(key), "-out", str(path)]
    subprocess.run(["openssl", *made.split(), *names, *places], check=True, capture_output=True)
    return path


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def sees(access: Access) -> Any:
    """The configuration of the package that a connection is made with."""
    return asyncio.run(_configuration(access))


async def _configuration(access: Access) -> Any:
    async with KubeClient(access) as api:
        connection = await api._connect()
        await connection._configuration.get_api_key_with_prefix("BearerToken")
        return connection._configuration


@pytest.mark.parametrize("carried", [True, False])
def test_a_kubeconfig_is_read_as_the_official_client_reads_it(
    tmp_path: Path, certificate: Path, *, carried: bool
) -> None:
    key = certificate.with_suffix(".key")
    if carried:
        cluster = {"certificate-authority-data": encoded(certificate)}
        user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    else:
        cluster = {"certificate-authority": str(certificate)}
        user = {"client-certificate": certificate.name, "client-key": key.name}
    cluster |= {"server": "https://10.1.2.3:6443/k8s/", "tls-server-name": "api.example"}
    cluster |= {"proxy-url": "http://proxy.example:3128"}
    path = written(tmp_path, config(cluster, user | {"token": "secret"}))

    theirs = Configuration()
    load_kube_config(str(path), client_configuration=theirs)
    access = read_kubeconfig(path)
    ours = sees(access)

    assert f"{access}" == ours.host == theirs.host.rstrip("/")
    assert ours.api_key["BearerToken"] == theirs.get_api_key_with_prefix("BearerToken")
    assert ours.tls_server_name == theirs.tls_server_name
    assert ours.proxy == "http://proxy.example:3128"
    for name in ("ssl_ca_cert", "cert_file", "key_file"):
        assert Path(getattr(ours, name)).read_bytes() == Path(getattr(theirs, name)).read_bytes()


SKIP = {"insecure-skip-tls-verify": True}
WRONG = {
    "empty": "",
    "not YAML": "{",
    "a list": "[]",
    "no context": {"clusters": []},
    "no such cluster": {**config({}, {}), "clusters": []},
    "no server": config({}, {}),
    "no scheme": config({"server": "10.1.2.3:6443"}, {}),
    "another user's groups": config({"server": "https://a"}, {"as": "a", "as-groups": ["b"]}),
    "a login that is gone": config({"server": "https://a"}, {"auth-provider": {"name": "azure"}}),
    "a proxy of another kind": config({"server": "https://a", "proxy-url": "socks5://p"}, {}),
    "a port that is none": config({"server": "https://a:b"}, {}),
    "broken data": config({"server": "https://a", "certificate-authority-data": "%"}, {}),
    "names of a wrong type": {**config({}, {}), "clusters": [3]},
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: Any) -> None:
    path = written(tmp_path, content)

    with pytest.raises(InputError) as refused:
        read_kubeconfig(path)

    assert str(refused.value).startswith(f"{path}: ")


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        read_kubeconfig(tmp_path / "nowhere")


def test_a_pod_uses_its_service_account(tmp_path: Path, certificate: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_bytes(certificate.read_bytes())
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}

    access = find_access(None, environment, tmp_path)

    assert str(access) == "https://[fd00::1]:443"
    assert sees(access).api_key == {"BearerToken": "Bearer secret"}
    assert sees(access).ssl_ca_cert == str(tmp_path / "ca.crt")


@pytest.mark.parametrize("environment", [{}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}])
def test_without_either_there_is_no_api_server(tmp_path: Path, environment: dict[str, str]) -> None:
    with pytest.raises(NoAccess, match="--kubeconfig"):
        find_access(None, environment, tmp_path)


@pytest.mark.parametrize("of", ["pod", "kubeconfig"])
async def test_a_token_that_is_renewed_is_used_at_once(
    server: SimulatedApiServer, tmp_path: Path, of: str
) -> None:
    (tmp_path / "token").write_text("first")
    server.token = "second"
    access = Access(server.url, account=tmp_path)
    if of == "kubeconfig":
        access = read_kubeconfig(
            written(tmp_path, config({"server": server.url}, {"tokenFile": "token", "token": "x"}))
        )
    api = opened(access)

    with pytest.raises(ApiRefused) as refused:
        await api.get("/api/v1/pods")
    (tmp_path / "token").write_text("second")

    assert refused.value.status == 401
    assert (await api.get("/api/v1/pods"))["items"] == []


async def test_a_kubeconfig_that_changes_is_read_again(
    server: SimulatedApiServer, tmp_path: Path
) -> None:
    def say(token: str) -> Path:
        return written(tmp_path, config({"server": server.url}, {"token": token}))

    server.token = "second"
    api = opened(read_kubeconfig(say("first")))
    with pytest.raises(ApiRefused):
        await api.get("/api/v1/pods")

    later = say("second").stat().st_mtime_ns + 10**9
    os.utime(tmp_path / "kubeconfig", ns=(later, later))

    assert (await api.get("/api/v1/pods"))["items"] == []


def program(folder: Path, *, expires: str = "2099-01-01T00:00:00Z") -> dict[str, Any]:
    """A kubeconfig's `exec`: counts its runs and gives the token `run-N`."""
    path, runs = folder / "login", folder / "runs"
    version = "client.authentication.k8s.io/v1"
    status = f'"token": "run-$(wc -l < {runs} | tr -d " ")", "expirationTimestamp": "{expires}"'
    told = f'{{"apiVersion": "{version}", "kind": "ExecCredential", "status": {{{status}}}}}'
    quoted = told.replace('"', '\\"').replace('tr -d \\" \\"', "tr -d ' '")
    path.write_text(f'#!/bin/sh\necho >> {runs}\necho "{quoted}"\n')
    path.chmod(0o755)
    return {"exec": {"apiVersion": version, "command": str(path)}}


async def test_a_program_is_asked_for_a_token_once_while_that_is_good(
    server: SimulatedApiServer, tmp_path: Path
) -> None:
    server.token = "run-1"
    api = opened(
        read_kubeconfig(written(tmp_path, config({"server": server.url}, program(tmp_path))))
    )

    for _ in range(2):
        assert (await api.get("/api/v1/pods"))["items"] == []


async def test_a_token_that_ends_is_asked_for_again(
    server: SimulatedApiServer, tmp_path: Path
) -> None:
    user = program(tmp_path, expires="2020-01-01T00:00:00Z")
    clock = ManualClock(1000.0)
    access = read_kubeconfig(written(tmp_path, config({"server": server.url}, user)))
    server.token = "run-1"
    async with KubeClient(access, clock=clock) as api:
        await api.get("/api/v1/pods")
        server.token = "run-2"
        clock.now += RENEW_SECONDS

        assert (await api.get("/api/v1/pods"))["items"] == []


async def test_a_program_that_fails_is_named(server: SimulatedApiServer, tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"}}
    path = written(tmp_path, config({"server": server.url}, user))

    with pytest.raises(ApiUnavailable, match=r"kubeconfig: user: exec '/bin/false' gave no"):
        await opened(read_kubeconfig(path)).get("/api/v1/pods")


async def _proxied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str) -> bytes:
    """The first line that a proxy reads, which is named there."""
    asked = asyncio.get_running_loop().create_future()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set_result(await reader.readline())
        writer.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        cluster = {"server": "http://api.example"}
        if where == "kubeconfig":
            cluster["proxy-url"] = url
            monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        else:
            monkeypatch.setenv("http_proxy", url)
        with pytest.raises(ApiUnavailable):
            await opened(read_kubeconfig(written(tmp_path, config(cluster, {})))).get("/api")
    return bytes(await asked)


@pytest.mark.parametrize("where", ["kubeconfig", "environment"])
async def test_requests_go_through_a_proxy(
    server: SimulatedApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    asked = await _proxied(monkeypatch, tmp_path, where)

    assert asked == b"GET http://api.example/api HTTP/1.1\r\n"


async def test_a_server_of_no_proxy_is_asked_itself(
    server: SimulatedApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server.token = "right"
    path = written(tmp_path, config({"server": server.url}, {"token": "right"}))

    assert (await opened(read_kubeconfig(path)).get("/api/v1/pods"))["items"] == []


async def test_a_password_in_netrc_is_not_the_api_server_s(
    server: SimulatedApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server.token = "right"
    path = written(tmp_path, config({"server": server.url}, {"token": "right"}))

    assert (await opened(read_kubeconfig(path)).get("/api/v1/pods"))["items"] == []


async def test_another_user_is_impersonated(server: SimulatedApiServer, tmp_path: Path) -> None:
    path = written(tmp_path, config({"server": server.url}, {"as": "somebody"}))
    connection = await opened(read_kubeconfig(path))._connect()

    assert connection._client.default_headers["Impersonate-User"] == "somebody"


async def test_certificates_that_are_renewed_are_read_again(
    certificate: Path, tmp_path: Path
) -> None:
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": str(certificate)}
    api = opened(read_kubeconfig(written(tmp_path, config(cluster, {}))))
    before = await api._connect()
    again = await api._connect()

    os.utime(certificate, ns=(10**18, 10**18))

    assert before is again
    assert await api._connect() is not before


@pytest.mark.parametrize(("more", "answered"), [({}, False), (SKIP, True)], ids=["checked", "not"])
async def test_a_server_s_certificate_is_checked_unless_the_kubeconfig_says_not(
    tmp_path: Path, certificate: Path, more: dict[str, Any], *, answered: bool
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as listening:
        port = listening.sockets[0].getsockname()[1]
        path = written(tmp_path, config({"server": f"https://127.0.0.1:{port}", **more}, {}))
        if answered:
            assert await opened(read_kubeconfig(path)).get("/api") == {}
        else:
            with pytest.raises(ApiUnavailable, match=r"(?i)certificate"):
                await opened(read_kubeconfig(path)).get("/api")
        await close_clients()


@pytest.mark.parametrize(
    ("override", "environment", "name"),
    [("n1", {"NODE_NAME": "n2"}, "n1"), (None, {"NODE_NAME": "n2"}, "n2")],
)
def test_the_node_is_named_by_the_flag_or_by_the_environment(
    override: str | None, environment: dict[str, str], name: str
) -> None:
    assert node_name(override, environment) == name


def test_otherwise_the_node_has_the_host_s_name_in_small_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Node-7")

    assert node_name(None, {}) == "node-7"


async def test_a_path_before_the_api_is_kept(simulated: ApiWorld) -> None:
    assert simulated.simulated
    api = client_of(simulated.simulated, "/elsewhere")

    with pytest.raises(ApiRefused) as refused:
        await api.get("/api/v1/pods")

    assert refused.value.status == 404
