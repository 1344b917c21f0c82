"""`gpumanager explain` where the node's agent, or the API server, knows more than the extender."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from gpumanager.cli import run
from tests.view.view_world import BUSY, document, snapshot

NOBODY = "http://127.0.0.1:1"


POD = {"spec": {"nodeName": "node-a"}, "status": {"phase": "Running"}}
EVENT = {"reason": "GpuPlanCorrected", "message": "has GPU 1", "lastTimestamp": "2026-01-01"}
PAGES = {
    "/api/node": json.dumps(document(snapshot(BUSY))),
    "/api/v1/namespaces/team/pods/train-0": json.dumps(POD),
    "/api/v1/namespaces/team/events": json.dumps({"items": [EVENT]}),
}


@pytest.fixture
def server() -> Iterator[str]:
    """An agent and an API server in one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = PAGES.get(self.path.partition("?")[0])
            content = (body or "{}").encode()
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{found.server_address[1]}"
        finally:
            found.shutdown()
            thread.join()


@pytest.fixture
def kubeconfig(server: str, tmp_path: Path) -> str:
    path = tmp_path / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "k"}}
    cluster = {"name": "k", "cluster": {"server": server}}
    path.write_text(
        json.dumps({"current-context": "c", "contexts": [context], "clusters": [cluster]})
    )
    return str(path)


def test_the_agent_tells_what_happened_on_the_node(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", "team/train-0", "--extender", NOBODY, "--agent", server]) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "The extender does not say" in said
    assert "Container main has 30 % and 4 GiB of GPU 0" in said
    assert "It was refused memory 3 times" in said


def test_the_api_server_tells_events_where_there_is_a_kubeconfig(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", "team/train-0", "--extender", NOBODY, "--kubeconfig", kubeconfig]
    assert run(words) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "Its phase is Running, on node node-a." in said
    assert "GpuPlanCorrected: has GPU 1" in said


def test_as_json_each_has_its_own_field(
    server: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", "team/train-0", "--extender", NOBODY, "--agent", server, "--json"]
    assert run([*words, "--kubeconfig", kubeconfig]) == 0

    said = json.loads(capsys.readouterr().out)
    assert said["pod"] == "team/train-0"
    assert "Connection refused" in said["extender_error"]
    (container,) = said["admission"]["containers"]
    assert [one["index"] for one in container["gpus"]] == [0]
    assert said["admission"]["sentences"]
    assert said["cluster"][0].startswith("Its phase is Running")


def test_a_document_without_events_has_none(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = json.loads(PAGES["/api/node"])
    del page["events"]  # which the schema leaves open
    monkeypatch.setitem(PAGES, "/api/node", json.dumps(page))

    words = ["explain", "team/train-0", "--extender", NOBODY, "--agent", server, "--json"]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["admission"]["events"] == []


def test_a_pod_that_nobody_knows_is_an_error_that_says_who_was_asked(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", "team/nobody", "--extender", NOBODY, "--agent", server]) == 1

    error = capsys.readouterr().err
    assert "the agent of node-a knows nothing of it" in error
    assert "cannot ask the extender: Connection refused" in error
    assert error.count("\n") == 1


def test_an_agent_that_was_named_and_does_not_answer_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["explain", "a/b", "--extender", NOBODY, "--agent", "http://127.0.0.1:2"]) == 1

    assert "http://127.0.0.1:2: cannot ask the agent: Connection refused" in capsys.readouterr().err


def test_a_pod_that_the_api_server_does_not_have_is_told(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", "team/gone", "--extender", NOBODY, "--kubeconfig", kubeconfig]) == 1

    assert "404" in capsys.readouterr().err
