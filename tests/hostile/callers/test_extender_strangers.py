"""Whoever reached the extender's port was obeyed: it bound pods that were none of its business to
any node, and kept what it was sent, 15 MiB for each of 8,192 pods, until it was killed.
"""

import asyncio
import contextlib
import http.client
import json
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.scheduler.scheduler_world import node_object, pod_object
from tests.scheduler.served_extender import Served, serving

pytest_plugins = ["tests.scheduler.extender_fixtures"]

MIB: Final = 1 << 20
LARGE: Final = 15 * MIB
REQUESTS: Final = 9
"""Of each kind; what is kept of those after the first few is more than the noise."""
FEW: Final = 3
"""Requests, after which what is held for good is there."""
NOISE: Final = 4 * LARGE
"""What is held more or less at any moment, of bodies and answers; what was kept grew with each."""
KUBECONFIG: Final = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here}}}}]
clusters: [{{name: here, cluster: {{server: "{url}"}}}}]
"""


def plain_pod(name: str) -> Any:
    """It asks for no GPU, and is the default scheduler's."""
    item = pod_object(name)
    item["spec"] = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "image": "none"}],
    }
    return item


async def test_a_pod_that_asks_for_no_gpu_is_not_bound(served: Served) -> None:
    pod = await served.make("pods", plain_pod("payroll"))

    assert "asks for no GPU" in await served.bind(pod, "a")

    assert not served.pod("payroll")["spec"].get("nodeName")


async def test_what_a_stranger_says_of_a_pod_does_not_count_when_it_is_bound(
    served: Served,
) -> None:
    pod = await served.make("pods", plain_pod("payroll"))
    forged = pod_object("payroll", (30, 4)) | {"metadata": pod["metadata"]}
    await served.post("/scheduler/filter", {"Pod": forged, "NodeNames": ["a"]})

    assert "asks for no GPU" in await served.bind(pod, "a")

    assert not served.pod("payroll")["spec"].get("nodeName")


async def test_a_pod_of_another_scheduler_is_not_bound(api: SimulatedApiServer) -> None:
    await api.create("nodes", node_object("a"))
    async with serving(api, schedulers=frozenset({"gpu-scheduler"})) as one:
        ours, other = pod_object("ours", (30, 4)), pod_object("other", (30, 4))
        ours["spec"]["schedulerName"] = "gpu-scheduler"
        other["spec"]["schedulerName"] = "default-scheduler"
        ours, other = [await one.make("pods", item) for item in (ours, other)]

        assert "of scheduler 'default-scheduler'" in await one.bind(other, "a")
        assert await one.bind(ours, "a") == ""


async def test_a_pod_is_bound_by_who_did_not_filter_it(served: Served) -> None:
    """The leader changed between the two."""
    pod = await served.make("pods", pod_object("p", (30, 4)))

    assert await served.bind(pod, "a") == ""


class Process:
    """A real extender, and what it holds."""

    def __init__(self, pid: int, port: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self.port = port

    @property
    def held(self) -> int:
        """Bytes of memory."""
        found = re.search(r"VmRSS:\s+(\d+) kB", self._status.read_text())
        assert found is not None
        return int(found[1]) << 10

    def post(
        self, path: str, body: Any, context: ssl.SSLContext | None = None
    ) -> tuple[int, bytes]:
        return self._ask("POST", path, json.dumps(body).encode(), context)

    def get(self, path: str, context: ssl.SSLContext | None = None) -> int:
        return self._ask("GET", path, None, context)[0]

    def _ask(
        self, method: str, path: str, body: bytes | None, context: ssl.SSLContext | None
    ) -> tuple[int, bytes]:
        connection = (
            http.client.HTTPSConnection("127.0.0.1", self.port, timeout=120, context=context)
            if context
            else http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        )
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()


@contextlib.asynccontextmanager
async def extender(api: SimulatedApiServer, folder: Path, *flags: object) -> AsyncIterator[Process]:
    config = folder / "kubeconfig"
    config.write_text(KUBECONFIG.format(url=api.url))
    words = ("extender", "--kubeconfig", config, "--address", "127.0.0.1:0")
    command = (sys.executable, "-m", "gpumanager", *words, "--leader-elect=false", *flags)
    running = await asyncio.create_subprocess_exec(
        *map(str, command), stderr=asyncio.subprocess.PIPE
    )
    assert running.stderr is not None
    line = b""
    while b"listening on" not in line:
        line = await running.stderr.readline()
        assert line, "it has ended"
    reading = asyncio.create_task(running.stderr.read())
    process = Process(running.pid, int(line.rsplit(b":", 1)[1]))
    scheme = "https" if b"https" in line else "http"
    try:
        async with asyncio.timeout(120):
            while await asyncio.to_thread(process.get, "/readyz", _unsafe(scheme)) != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield process
        assert running.returncode is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.terminate()
        await running.wait()
        await reading


def _unsafe(scheme: str) -> ssl.SSLContext | None:
    if scheme == "http":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def asking(number: int) -> Any:
    item = pod_object(f"p{number}", (30, 4))
    item["metadata"] |= {"uid": f"uid-{number}", "namespace": "default"}
    return item


def wish(number: int, letters: str) -> Any:
    item = asking(number)
    item["metadata"]["annotations"] = {"tencent.com/include-gpu-model": letters}
    return item


def unread(number: int, letters: str) -> Any:
    item = asking(number)
    item["metadata"]["annotations"] = {"tencent.com/x": letters}
    return item


def name(number: int, letters: str) -> Any:
    item = asking(number)
    item["metadata"]["name"] += letters
    return item


def uid(number: int, letters: str) -> Any:
    item = asking(number)
    item["metadata"]["uid"] += letters
    return item


def container(number: int, letters: str) -> Any:
    item = asking(number)
    item["spec"]["containers"][0]["name"] = letters
    return item


def quantity(number: int, letters: str) -> Any:
    item = asking(number)
    item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": letters}
    return item


def many_words(number: int, letters: str) -> Any:
    return wish(number, ",".join(f"{letters[:1]}{word}" for word in range(LARGE // 16)))


def many_containers(number: int, letters: str) -> Any:
    item = asking(number)
    item["spec"]["containers"] *= LARGE // 1024
    item["metadata"]["generateName"] = letters[:MIB]
    return item


KINDS: Final[Mapping[Callable[[int, str], Any], int]] = {
    unread: 200,
    wish: 200,
    many_words: 200,
    quantity: 200,
    name: 400,
    uid: 400,
    container: 400,
    many_containers: 400,
}
"""What a request can be large by, and how it is answered: not at all, or about a pod."""


async def test_nothing_of_large_requests_is_kept(
    api: SimulatedApiServer, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    await api.create("nodes", node_object("a"))
    async with extender(api, tmp_path) as one:
        for kind, wanted in KINDS.items():
            with subtests.test(kind.__name__):
                before = 0
                for number in range(REQUESTS):
                    body = {"Pod": kind(number, str(number) * LARGE), "NodeNames": ["a"]}
                    status, _ = await asyncio.to_thread(one.post, "/scheduler/filter", body)
                    assert status == wanted
                    if number == FEW:
                        before = one.held
                assert one.held - before < NOISE


async def test_names_of_nodes_are_not_kept_where_they_are_large(
    api: SimulatedApiServer, tmp_path: Path
) -> None:
    await api.create("nodes", node_object("a"))
    async with extender(api, tmp_path) as one:
        for number in range(REQUESTS):
            body = {"Pod": asking(number), "NodeNames": [f"{'x' * LARGE}{number}"]}
            status, _ = await asyncio.to_thread(one.post, "/scheduler/filter", body)
            assert status == 400
            if number == FEW:
                before = one.held
        assert one.held - before < NOISE


async def test_a_body_beyond_the_bound_is_refused(api: SimulatedApiServer, tmp_path: Path) -> None:
    async with extender(api, tmp_path, "--max-request-mib=1") as one:
        status, said = await asyncio.to_thread(
            one.post, "/scheduler/filter", {"Pod": unread(1, "x" * MIB)}
        )

    assert status == http.client.REQUEST_ENTITY_TOO_LARGE
    assert b"the most is 1048576" in said


def certificate(folder: Path, common_name: str, authority: tuple[Path, Path] | None = None) -> Any:
    """A certificate and its key; without an authority it is one."""
    path, key = folder / f"{common_name}.crt", folder / f"{common_name}.key"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj"
    words = [*made.split(), f"/CN={common_name}"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(path)]
    if authority:
        more += ["-CA", str(authority[0]), "-CAkey", str(authority[1])]
    subprocess.run(["openssl", *words, *more], check=True, capture_output=True)
    return path, key


async def test_only_who_has_a_certificate_is_obeyed(
    api: SimulatedApiServer, tmp_path: Path
) -> None:
    await api.create("nodes", node_object("a"))
    await api.create("pods", pod_object("p", (30, 4)))
    server, other = certificate(tmp_path, "server"), certificate(tmp_path, "other")
    authority = certificate(tmp_path, "authority")
    scheduler, neighbour = (
        certificate(tmp_path, name, authority) for name in ("gpu-scheduler", "neighbour")
    )
    flags: tuple[object, ...] = ("--tls-cert-file", server[0], "--tls-private-key-file", server[1])
    flags += (
        "--client-ca-file",
        authority[0],
        "--client-name",
        "gpu-scheduler",
        "--anonymous-read",
    )
    bind = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}
    bind["PodUID"] = api.objects.get(Key("pods", "default", "p"))["metadata"]["uid"]

    def context(ours: tuple[Path, Path] | None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=server[0])
        if ours:
            made.load_cert_chain(*ours)
        return made

    async with extender(api, tmp_path, *flags) as one:

        def asked(ours: tuple[Path, Path] | None) -> int:
            return one.post("/scheduler/bind", bind, context(ours))[0]

        refused = [await asyncio.to_thread(asked, ours) for ours in (None, neighbour)]
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(asked, other)
        pages = [
            await asyncio.to_thread(one.get, path, context(None))
            for path in ("/healthz", "/readyz", "/metrics")
        ]
        assert not api.objects.get(Key("pods", "default", "p"))["spec"].get("nodeName")
        obeyed = await asyncio.to_thread(asked, scheduler)

    assert refused == [403, 403]
    assert pages == [200, 200, 200]
    assert obeyed == 200
    assert api.objects.get(Key("pods", "default", "p"))["spec"]["nodeName"] == "a"
