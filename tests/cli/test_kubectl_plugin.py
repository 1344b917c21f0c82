"""`kubectl gpu`: which commands run in a pod, and that they get there, by a kubectl that notes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumanager.cli.kubectl_plugin import AGENT, LEADER, SELECTOR, PodCommand, pod_command
from gpumanager.errors import InputError

EXTENDER = SELECTOR + LEADER
AGENTS = SELECTOR + AGENT
KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >> {notes}
case "$1" in get) printf '{pods}';; esac
"""


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("explain a/b --json", PodCommand(EXTENDER, "", ("explain", "a/b", "--json"))),
        ("explain a/b --extender https://x:1", None),
        ("explain a/b --extender=https://x:1", None),
        ("top --node n1 --once", PodCommand(AGENTS, "n1", ("top", "--once"))),
        ("tree --node=n1", PodCommand(AGENTS, "n1", ("tree",))),
        ("top --once", PodCommand(EXTENDER, "", ("top", "--once", "--cluster"))),
        ("top --cluster", PodCommand(EXTENDER, "", ("top", "--cluster"))),
        ("top --cluster --extender http://x:1", None),
        ("top --agent http://x:1", None),
        ("top --extender=http://x:1 --cluster", None),
        ("top --node n1 --agent http://x:1", None),
        ("explain --help", None),
        ("top -h", None),
        ("tree --topology x.txt", None),
        ("plan --node n1", None),
        ("", None),
    ],
)
def test_a_command_runs_in_a_pod_unless_an_address_is_named(
    words: str, command: PodCommand | None
) -> None:
    assert pod_command(words.split(), {}) == command


def test_an_address_in_the_environment_is_one_too() -> None:
    assert pod_command(["explain", "a/b"], {"GPUMANAGER_EXTENDER": "https://x:1"}) is None
    assert pod_command(["top", "--cluster"], {"GPUMANAGER_EXTENDER": "https://x:1"}) is None
    assert pod_command(["top"], {"GPUMANAGER_AGENT": "http://x:1"}) is None


def run(tmp_path: Path, pods: str, *words: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """And what kubectl was asked."""
    notes, kubectl = tmp_path / "notes", tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(notes=notes, pods=pods))
    kubectl.chmod(0o755)
    code = "from gpumanager.cli.kubectl_plugin import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, notes.read_text()


def test_explain_is_run_by_kubectl_in_the_extender_that_leads(tmp_path: Path) -> None:
    done, asked = run(tmp_path, "kube-system e-1\\n", "explain", "research/train-7")

    assert done.returncode == 0
    first, second = asked.splitlines()
    assert EXTENDER in first
    assert second == "exec -i -n kube-system e-1 -- gpumanager explain research/train-7"


@pytest.mark.parametrize("name", ["tree", "doctor"])
def test_a_command_for_one_node_needs_its_name(name: str) -> None:
    with pytest.raises(InputError, match=f"name a node: kubectl gpu {name} --node NODE"):
        pod_command([name], {})


def test_where_there_is_no_such_pod_that_is_said(tmp_path: Path) -> None:
    done, _ = run(tmp_path, "", "top", "--node", "n1")

    assert done.returncode == 1
    assert "no pod on node n1 has the labels" in done.stderr


def test_of_what_kubectl_complains_of_the_cause_is_said(tmp_path: Path) -> None:
    fails = "'; echo E1125 memcache.go:265 >&2; echo connection refused >&2; exit 1; echo '"

    done, _ = run(tmp_path, fails, "top")

    assert (done.returncode, done.stderr) == (1, "gpumanager: connection refused\n")
