"""`gpumanager simulate` with pods as people have them: servers, volumes, workloads, a page."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli.node_agents import list_nodes
from gpumanager.sim.container.process import namespaces_available, own_environment
from tests.waiting import until

SECONDS = 600
MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]

SERVER = """\
apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  containers:
    - name: main
      command: [sh, -c, "echo serving; while sleep 1; do :; done"]
      resources: {limits: {tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 4}}
"""

WEB = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {app.conf: "a=$(b)"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      volumes:
        - {name: data, emptyDir: {}}
        - {name: conf, configMap: {name: settings}}
      initContainers:
        - name: fill
          command: [sh, -c, "echo filled > /data/file"]
          volumeMounts: [{name: data, mountPath: /data}]
      containers:
        - name: main
          command: [sh, -c]
          args: ["echo $(GREETING) $(cat /conf/app.conf) $$(cat /data/file) on=$(VCUDA_GPUS)"]
          env:
            - {name: NAME, value: world}
            - {name: GREETING, value: "hello-$(NAME)"}
          volumeMounts:
            - {name: data, mountPath: /data, readOnly: true}
            - {name: conf, mountPath: /conf}
          resources: {limits: {tencent.com/vcuda-core: 3e1, tencent.com/vcuda-memory: 4}}
"""


TWO = """\
apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  restartPolicy: Never
  containers:
    - name: thirty
      command: &command [sh, -c, "ls /etc/vcuda/turns; cuda-play launch --kernel 2ms --seconds 3"]
      resources: {limits: {tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 4}}
    - name: sixty
      command: *command
      resources: {limits: {tencent.com/vcuda-core: 60, tencent.com/vcuda-memory: 4}}
"""

TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: share}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly: {deviceClassName: gpu.tencent.com, capacity: {requests: {CAPACITY}}}
---
"""

CLAIMING_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: claims}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: share}]
  containers:
    - {name: main, command: ["true"], resources: {claims: [{name: gpu}]}}
"""


def share_of(capacity: str) -> str:
    """The template of a claim."""
    return TEMPLATE.replace("CAPACITY", capacity)


def simulate(text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The pods come on standard input."""
    command = [sys.executable, "-m", "gpumanager", "simulate", "--machine", "single", *words, "-"]
    return subprocess.run(
        command,
        input=text,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=own_environment(),
    )


def rows(finished: subprocess.CompletedProcess[str]) -> list[Any]:
    found: list[Any] = json.loads(finished.stdout)["containers"]
    return found


def test_pods_take_turns() -> None:
    finished = simulate(TWO, "--json")

    assert finished.stderr.count("| ring") == 2, finished.stderr
    for one, most in zip(rows(finished), (30, 60), strict=True):
        assert one["exit_code"] == 0
        assert 1 < one["share_achieved_percent"] < most + 5
        assert one["throttled_launches"] > 0
        assert one["throttled_seconds"] > 0


def test_a_server_is_stopped_in_time_and_its_figures_are_shown() -> None:
    finished = simulate(SERVER, "--for", "1s", "--strict", "--json")

    (row,) = rows(finished)
    assert finished.returncode == 0, finished.stderr
    assert row["stopped"]
    assert row["gpus"]


def test_figures_are_shown_where_time_runs_out() -> None:
    """However slow the machine is: more time where the container had not begun in it."""
    for seconds in ("3", "10s", "1m"):
        finished = simulate(SERVER, "--timeout", seconds, "--json")
        assert finished.returncode == 1
        if "still running" in finished.stderr:
            break

    assert rows(finished)[0]["stopped"]
    assert "still running: server/main" in finished.stderr.splitlines()[-1]


async def test_figures_are_shown_after_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(SERVER)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpumanager", "simulate", "--machine", "single", "--json"),
        str(tmp_path / "pod.yaml"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=own_environment(),
    )
    assert process.stderr is not None
    async with asyncio.timeout(SECONDS):
        while b"serving" not in await process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        out, error = await process.communicate()

    assert process.returncode == 130
    assert json.loads(out)["containers"][0]["stopped"]
    assert error.decode().splitlines()[-1] == "gpumanager: interrupted"


def test_a_workload_with_volumes_and_variables_runs_as_in_a_cluster() -> None:
    finished = simulate(WEB, "--strict", "--json")

    assert finished.returncode == 0, finished.stderr
    mains = [row for row in rows(finished) if row["container"] == "main"]
    assert len(mains) == 2
    for row in mains:
        said = f"hello-world a=$(b) filled on={row['gpus'][0]}"
        assert f"{row['pod'].removeprefix('default/')}/main | {said}" in finished.stderr


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("vcuda-memory: 4", "vcuda-memory: 2Gi", "counted in blocks of 256 MiB: write 8"),
        ("{name: server}", "{name: server, annotations: {tencent.com/vcuda-core-limit: high}}", ""),
        ("while sleep 1; do :; done", "exit 3", ""),
    ],
)
def test_strict_fails_where_a_pod_is_refused_or_fails(before: str, after: str, said: str) -> None:
    text = SERVER.replace(before, after)

    finished = simulate(text, "--for", "1s", "--strict")

    assert finished.returncode == 1
    assert "--strict: a pod was refused or failed" in finished.stderr
    assert said in " ".join(finished.stdout.split())


def test_the_webhook_speaks() -> None:
    text = SERVER.replace(
        "{name: server}",
        "{name: server, annotations: {tencent.com/vcuda-core-limit: high, "
        'tencent.com/vcuda-corelimit: "80"}}',
    )

    finished = simulate(text, "--for", "1s")

    said = " ".join(finished.stdout.split())
    assert finished.returncode == 0
    assert "the webhook would refuse it: annotation tencent.com/vcuda-core-limit: 'high'" in said
    assert "vcuda-corelimit is unknown; did you mean tencent.com/vcuda-core-limit?" in said


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        ("coers: 30", "the webhook would refuse it: {}.coers: no GPU has such a capacity"),
        ("cores: 30", "the webhook warns: {}.memory is not said and means all of the GPU's"),
        ("memory: 200Gi, cores: 1", "the webhook warns: {}.memory: 200Gi; no node has a GPU with"),
    ],
)
def test_the_webhook_speaks_of_claims(capacity: str, said: str) -> None:
    text = f"{share_of(capacity)}{CLAIMING_POD}"
    path = "spec.spec.devices.requests[0].exactly.capacity.requests"

    finished = simulate(text, "--for", "1s")

    assert finished.returncode == 0
    told = " ".join(finished.stdout.split())
    assert f"ResourceClaimTemplate default/share {said.format(path)}" in told


def test_strict_fails_where_the_webhook_refuses_a_claim() -> None:
    finished = simulate(f"{share_of('coers: 30')}{CLAIMING_POD}", "--strict", "--json")

    assert finished.returncode == 1
    (said,) = json.loads(finished.stdout)["webhook"]
    assert said["claim"] == "ResourceClaimTemplate default/share"
    assert len(said["errors"]) == 1


async def test_a_served_node_answers_until_it_is_ended(tmp_path: Path) -> None:
    """A pod that ends is started again; what to call is said."""
    (tmp_path / "pod.yaml").write_text(SERVER.replace("while sleep 1; do :; done", "sleep 1"))
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpumanager", "simulate", "--machine", "single"),
        *("--serve", str(port), str(tmp_path / "pod.yaml")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=own_environment(),
    )
    assert process.stderr is not None
    lines: list[str] = []
    async with asyncio.timeout(SECONDS):
        while sum("serving" in line for line in lines) < 2:
            lines.append((await process.stderr.readline()).decode())
        url = f"http://localhost:{port}"
        await until(lambda: list_nodes([url])[0].node is not None)
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()

    assert any(url in line for line in lines)
    assert any(f"gpumanager explain default/server --agent {url}" in line for line in lines)
    assert b"server/main" in out
    assert process.returncode == 130


CLAIMING = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {app.conf: configured}
---
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      resourceClaims: [{name: gpu, resourceClaimTemplateName: share}]
      volumes: [{name: conf, configMap: {name: settings}}]
      containers:
        - name: main
          command: [sh, -c, "echo $(JOB_COMPLETION_INDEX) $(cat /conf/app.conf)"]
          volumeMounts: [{name: conf, mountPath: /conf}]
          resources: {claims: [{name: gpu}]}
"""


def test_a_workload_with_claims_has_its_volumes_and_variables_too() -> None:
    finished = simulate(f"{share_of('cores: 30, memory: 1Gi')}{CLAIMING}", "--strict", "--json")

    assert finished.returncode == 0, finished.stderr
    assert [(row["cores"], len(row["gpus"])) for row in rows(finished)] == [(30, 1), (30, 1)]
    assert {"0 configured", "1 configured"} <= {
        line.rpartition(" | ")[2] for line in finished.stderr.splitlines()
    }
