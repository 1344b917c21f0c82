"""Reading the kubelet's list of pods."""

import asyncio
import contextlib
import json
import socketserver
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.errors import InputError
from gpumanager.kube.pod import ContainerKind, ContainerView, PodView
from gpumanager.kubelet.pods import KubeletPods, PodsUnavailable, parse_pods, parse_version
from gpumanager.names import VCORE, VMEMORY

BOUND = 120.0
"""Seconds after which a test is stuck; a busy machine may need many."""


async def pieces(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def read_list(chunks: Iterable[bytes]) -> tuple[PodView, ...]:
    return asyncio.run(parse_pods(pieces(chunks)))


def version(chunks: Iterable[bytes]) -> str:
    return asyncio.run(parse_version(pieces(chunks)))


def asking(name: str, cores: object, blocks: object, **more: object) -> dict[str, object]:
    limits = {VCORE: cores, VMEMORY: blocks, "cpu": "500m"}
    return {"name": name, "resources": {"limits": limits}, **more}


POD = {
    "metadata": {
        "name": "train",
        "namespace": "team",
        "uid": "u1",
        "annotations": {"tencent.com/vcuda-core-limit": "70", "example.com/spec": "{…}"},
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "initContainers": [
            asking("prepare", "100", "0"),
            asking("proxy", 10, 1, restartPolicy="Always"),
        ],
        "containers": [asking("main", "30", "8"), {"name": "log"}],
    },
    "status": {"phase": "Running"},
}


def listed(*pods: object) -> bytes:
    return json.dumps({"kind": "PodList", "items": pods}).encode()


def test_a_kubelet_s_version_is_in_its_metrics() -> None:
    metrics = b"""# TYPE kubernetes_build_info gauge
kubernetes_build_info{build_date="",git_version="v1.36.2",go_version="go1.26",major="1"} 1
kubernetes_feature_enabled{name="A"} 1
"""

    assert version([metrics]) == "v1.36.2"


def test_metrics_of_somebody_else_tell_no_version() -> None:
    with pytest.raises(PodsUnavailable, match="do not name its version"):
        version([b'go_info{version="go1.26"} 1\n'])


def test_a_pod_is_read_with_its_containers_in_the_order_of_admission() -> None:
    (pod,) = read_list([listed(POD)])

    assert (pod.uid, pod.namespace, pod.name, pod.phase) == ("u1", "team", "train", "Running")
    assert pod.terminating
    assert not pod.ended
    assert pod.annotations == {"tencent.com/vcuda-core-limit": "70"}
    assert pod.containers == (
        ContainerView("prepare", ContainerKind.INIT, 100, 0),
        ContainerView("proxy", ContainerKind.SIDECAR, 10, 1),
        ContainerView("main", ContainerKind.APP, 30, 8),
        ContainerView("log", ContainerKind.APP, 0, 0),
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("30", 30),
        (30, 30),
        ("1k", 1000),
        ("1e3", 1000),
        ("2Ki", 2048),
        ("0.5", None),
        ("500m", None),
        ("-1", None),
        ("", None),
        (None, None),
        (True, None),
        ("9" * 5000, None),
    ],
)
def test_a_quantity_that_is_no_whole_number_is_not_guessed(
    written: object, read: int | None
) -> None:
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [asking("c", written, 0)]}}

    assert read_list([listed(pod)])[0].containers[0].cores == read


def test_an_empty_node_has_no_pods() -> None:
    assert read_list([b'{"items": null}']) == ()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Unauthorized",
        b"[]",
        b"{}",
        b'{"items": [1]}',
        b'{"items": [{}]}',
        b"\xff",
        b"[" * 99999,
    ],
)
def test_what_is_no_list_of_pods_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(PodsUnavailable, match="not a list of pods"):
        read_list([body])


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["metadata", "spec", "uid", "name", "containers", "items"]), x
            )
        ),
    )
)
def test_no_json_makes_it_fail_otherwise(value: object) -> None:
    try:
        read_list([json.dumps({"items": value}).encode()])
    except PodsUnavailable as error:
        assert "cannot read the kubelet's pods" in str(error)  # noqa: PT017


class Kubelet(BaseHTTPRequestHandler):
    """Answers /pods; wants a token where its server has one."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.speaks.wait()
        wrong = server.token and self.headers["Authorization"] != f"Bearer {server.token}"
        body = listed(POD)
        refused = 401 if wrong else server.refuses
        self.send_response(refused or (200 if self.path == "/pods" else 404))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "/pods")  # read where it redirects
        self.end_headers()
        with contextlib.suppress(OSError):  # a caller with a deadline has left
            time.sleep(server.begins)
            for piece in (body[:100], body[100:200], body[200:]):
                self.wfile.write(piece)
                time.sleep(server.between)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def kubelet(
    *,
    token: str = "",
    silent: bool = False,
    refuses: int = 0,
    begins: float = 0.0,
    between: float = 0.0,
) -> Iterator[str]:
    """begins: seconds until the first byte of the body. between: two pieces of it."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Kubelet)
    server.daemon_threads, server.token, server.speaks = False, token, threading.Event()
    server.refuses, server.begins, server.between = refuses, begins, between
    if not silent:
        server.speaks.set()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.speaks.set()
        server.shutdown()
        thread.join()
        server.server_close()


async def test_pods_are_read_over_http() -> None:
    with kubelet() as endpoint:
        (pod,) = await KubeletPods(endpoint, deadline=BOUND).pods()

    assert pod.name == "train"


async def test_the_token_is_sent_and_read_anew_each_time(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with kubelet(token="second") as endpoint:
        source = KubeletPods(endpoint, token=token, deadline=BOUND)
        with pytest.raises(PodsUnavailable, match=r"401.*does not believe the token"):
            await source.pods()
        token.write_text("second\n")
        assert len(await source.pods()) == 1


async def test_who_may_not_read_pods_is_told_what_is_needed() -> None:
    with (
        kubelet(refuses=403) as endpoint,
        pytest.raises(PodsUnavailable, match=r"403.*nodes/proxy"),
    ):
        await KubeletPods(endpoint, deadline=BOUND).pods()


async def test_a_redirection_is_not_followed() -> None:
    """It would lead the token elsewhere."""
    with kubelet(refuses=302) as endpoint, pytest.raises(PodsUnavailable, match="status 302"):
        await KubeletPods(endpoint, deadline=BOUND).pods()


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    with kubelet() as endpoint:
        assert len(await KubeletPods(endpoint, deadline=BOUND).pods()) == 1


async def test_a_kubelet_that_does_not_answer_costs_no_more_than_the_deadline() -> None:
    with kubelet(silent=True) as endpoint:
        began = time.monotonic()
        with pytest.raises(PodsUnavailable, match=r"within 0\.5 s|timed out"):
            await KubeletPods(endpoint, deadline=0.1).pods()
        took = time.monotonic() - began

    assert took < 60  # the kubelet says nothing for as long as we ask


async def test_a_long_answer_may_take_longer_than_each_of_its_pieces() -> None:
    with kubelet(between=0.6) as endpoint:
        (pod,) = await KubeletPods(endpoint, deadline=0.3).pods()

    assert pod.name == "train"


async def test_a_kubelet_that_begins_late_is_waited_for_the_next_time() -> None:
    """It takes long to put a long list into words, which tenants can make long."""
    with kubelet(begins=0.6) as endpoint:
        source = KubeletPods(endpoint, deadline=0.1)
        with pytest.raises(PodsUnavailable, match=r"within 0\.5 s"):
            await source.pods()
        assert source._late is not None
        await asyncio.wait((source._late,))

        (pod,) = await source.pods()

    assert pod.name == "train"


async def test_a_kubelet_that_did_not_answer_is_waited_for_less_the_next_time() -> None:
    with kubelet(silent=True) as endpoint:
        source = KubeletPods(endpoint, deadline=0.1)
        for seconds in ("0\\.5", "0\\.1", "0\\.1"):
            with pytest.raises(PodsUnavailable, match=f"within {seconds} s"):
                await source.pods()


async def test_half_an_answer_is_none() -> None:
    """A pod that is missing in it would look as if it were gone."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b'{"items":[]}')
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PodsUnavailable):
            await KubeletPods(f"http://127.0.0.1:{port}", deadline=BOUND).pods()


async def test_a_kubelet_that_is_not_there_is_an_error_of_ours() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        port = server.server_address[1]

    with pytest.raises(PodsUnavailable, match="refused"):
        await KubeletPods(f"http://127.0.0.1:{port}", deadline=BOUND).pods()


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:10250", "ftp://host", "https://"])
def test_a_bad_endpoint_is_bad_input(endpoint: str) -> None:
    with pytest.raises(InputError, match="not a kubelet endpoint"):
        KubeletPods(endpoint)


def test_a_kubelet_elsewhere_is_not_believed_without_its_authority() -> None:
    KubeletPods("http://10.0.0.5:10255")
    KubeletPods("https://127.0.0.1:10250")
    with pytest.raises(InputError, match="certificate authority"):
        KubeletPods("https://10.0.0.5:10250")
