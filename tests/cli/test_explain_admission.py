"""`gpumanager explain` where the node's agent, or the API server, knows more than the extender."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumanager.cli import run
from tests.cli.commands import AGENT_PAGE, UNREACHABLE, answering, kubeconfig

POD = {"spec": {"nodeName": "node-a"}, "status": {"phase": "Running"}}
EVENT = {"reason": "GpuPlanCorrected", "message": "has GPU 1", "lastTimestamp": "2026-01-01"}
PAGES = {
    "/api/node": AGENT_PAGE,
    "/api/v1/namespaces/team/pods/train-0": json.dumps(POD),
    "/api/v1/namespaces/team/events": json.dumps({"items": [EVENT]}),
}


@pytest.fixture
def server() -> Iterator[str]:
    """An agent and an API server in one."""
    with answering(PAGES) as url:
        yield url


def explain(pod: str, *words: str) -> int:
    return run(["explain", pod, "--extender", UNREACHABLE, *words])


def test_the_agent_tells_what_happened_on_the_node(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("team/train-0", "--agent", server) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "The extender does not say" in said
    assert "Container main has 30 % and 4 GiB of GPU 0" in said
    assert "It was refused memory 3 times" in said


def test_the_api_server_tells_events_where_there_is_a_kubeconfig(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("team/train-0", "--kubeconfig", kubeconfig(tmp_path, server)) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "Its phase is Running, on node node-a." in said
    assert "GpuPlanCorrected: has GPU 1" in said


def test_as_json_each_has_its_own_field(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = kubeconfig(tmp_path, server)
    assert explain("team/train-0", "--agent", server, "--json", "--kubeconfig", config) == 0

    said = json.loads(capsys.readouterr().out)
    assert said["pod"] == "team/train-0"
    assert "Connection refused" in said["extender_error"]
    (container,) = said["admission"]["containers"]
    assert [one["index"] for one in container["gpus"]] == [0]
    assert said["admission"]["sentences"]
    assert said["cluster"][0].startswith("Its phase is Running")


def test_a_document_without_events_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    page = json.loads(AGENT_PAGE)
    del page["events"]  # which the schema leaves open

    with answering(json.dumps(page)) as url:
        assert explain("team/train-0", "--agent", url, "--json") == 0

    assert json.loads(capsys.readouterr().out)["admission"]["events"] == []


@pytest.mark.parametrize(
    ("words", "causes"),
    [
        ("team/nobody --agent {server}", ("the agent of node-a knows nothing", "the extender: ")),
        ("a/b --agent {nobody}", ("127.0.0.1:1: cannot ask the agent: Connection refused",)),
        ("team/gone --kubeconfig {config}", ("404",)),
    ],
)
def test_a_pod_that_none_of_those_asked_knows_is_an_error_of_one_line(
    words: str,
    causes: tuple[str, ...],
    server: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = kubeconfig(tmp_path, server)

    assert explain(*words.format(server=server, nobody=UNREACHABLE, config=config).split()) == 1

    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert [one for one in causes if one not in error] == []
