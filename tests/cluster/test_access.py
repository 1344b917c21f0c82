"""Where the API server is, and how it knows us."""

import base64
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from gpumanager.cluster.access import (
    Access,
    Certificates,
    NoAccess,
    find_access,
    node_name,
    read_kubeconfig,
)
from gpumanager.cluster.api import ApiRefused, ApiServer
from gpumanager.errors import InputError
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.cluster.api_world import ApiWorld

pytest_plugins = ["tests.cluster.api_fixtures"]


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
    made = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=api"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:api.example"]
    places = ["-keyout", str(key), "-out", str(path)]
    subprocess.run(["openssl", *made.split(), *names, *places], check=True, capture_output=True)
    return path


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


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
    path = written(tmp_path, config(cluster, user | {"token": "secret"}))

    theirs = Configuration()
    load_kube_config(str(path), client_configuration=theirs)
    ours = read_kubeconfig(path)

    assert f"{ours}" == theirs.host.rstrip("/")
    assert ours.headers()["Authorization"] == theirs.get_api_key_with_prefix("BearerToken")
    assert ours.server_name == theirs.tls_server_name
    assert ours.certificates is not None
    for mine, file in (
        (ours.certificates.authority, theirs.ssl_ca_cert),
        (ours.certificates.certificate, theirs.cert_file),
        (ours.certificates.key, theirs.key_file),
    ):
        content = mine.read_bytes() if isinstance(mine, Path) else mine
        assert content == Path(file).read_bytes()


WRONG = {
    "empty": "",
    "not YAML": "{",
    "a list": "[]",
    "no context": {"clusters": []},
    "no such cluster": {**config({}, {}), "clusters": []},
    "no server": config({}, {}),
    "no scheme": config({"server": "10.1.2.3:6443"}, {}),
    "a program": config({"server": "https://a"}, {"exec": {"command": "login"}}),
    "a password": config({"server": "https://a"}, {"username": "a", "password": "b"}),
    "a proxy": config({"server": "https://a", "proxy-url": "http://p"}, {}),
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


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_text("")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}

    access = find_access(None, environment, tmp_path)

    assert str(access) == "https://[fd00::1]:443"
    assert access.headers() == {"Authorization": "Bearer secret"}
    assert access.certificates == Certificates(tmp_path / "ca.crt")


@pytest.mark.parametrize("environment", [{}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}])
def test_without_either_there_is_no_api_server(tmp_path: Path, environment: dict[str, str]) -> None:
    with pytest.raises(NoAccess, match="--kubeconfig"):
        find_access(None, environment, tmp_path)


async def test_a_token_that_is_renewed_is_used_at_once(
    server: SimulatedApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    server.token = "second"
    api = ApiServer(Access("127.0.0.1", server.port, token=token))

    with pytest.raises(ApiRefused) as refused:
        await api.get("/api/v1/pods")
    token.write_text("second")

    assert refused.value.status == 401
    assert (await api.get("/api/v1/pods"))["items"] == []


def test_certificates_that_are_renewed_are_read_again(certificate: Path) -> None:
    access = Access("127.0.0.1", 1, certificates=Certificates(certificate))
    before = access.peer().tls
    again = access.peer().tls

    certificate.touch()
    stamp = certificate.stat()
    os.utime(certificate, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 10**9))

    assert before is again
    assert access.peer().tls is not before


def test_a_server_s_certificate_is_checked_unless_the_kubeconfig_says_not(
    tmp_path: Path,
) -> None:
    def mode(cluster: dict[str, Any]) -> Any:
        path = written(tmp_path, config({"server": "https://a", **cluster}, {}))
        tls = read_kubeconfig(path).peer().tls
        assert tls is not None
        return tls.verify_mode, tls.check_hostname

    assert mode({}) == (ssl.CERT_REQUIRED, True)
    assert mode({"insecure-skip-tls-verify": True}) == (ssl.CERT_NONE, False)


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
    monkeypatch.setattr("socket.gethostname", lambda: "Node-7")

    assert node_name(None, {}) == "node-7"


async def test_a_path_before_the_api_is_kept(simulated: ApiWorld) -> None:
    assert simulated.simulated
    api = ApiServer(Access("127.0.0.1", simulated.simulated.port, prefix="/elsewhere"))

    with pytest.raises(ApiRefused) as refused:
        await api.get("/api/v1/pods")

    assert refused.value.status == 404
