"""`gpumanager simulate` with pods as people have them: servers, volumes, workloads, a page."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli.node_agents import list_nodes
from gpumanager.cli.output.simulate_report import Report, print_report
from gpumanager.cli.simulate import judge
from gpumanager.sim.container.process import own_environment
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import read_manifest
from gpumanager.sim.results import ContainerResult
from tests.waiting import has_ended, until

SECONDS = 600
pytestmark = pytest.mark.namespaces
SIMULATE = (sys.executable, "-m", "gpumanager", "simulate")

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

ODD = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: odd}}
spec:
  restartPolicy: Never
  containers:
    - name: driver
      command:
        - {sys.executable}
        - -c
        - "import ctypes; version = ctypes.c_int();\
          ctypes.CDLL('libcuda.so.1').cuDriverGetVersion(ctypes.byref(version));\
          print('speaks', version.value)"
      resources: {{limits: {{tencent.com/vcuda-core: 10, tencent.com/vcuda-memory: 4}}}}
    - name: missing
      command: [no-such-program]
"""

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


def share_of(capacity: str) -> str:
    """The template of a claim."""
    return TEMPLATE.replace("CAPACITY", capacity)


def simulate(text: str, *words: str, machine: str = "single") -> subprocess.CompletedProcess[str]:
    """The pods come on standard input."""
    return subprocess.run(
        [*SIMULATE, "--machine", machine, *words, "-"],
        input=text,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=own_environment(),
    )


def rows(said: str | bytes) -> list[Any]:
    found: list[Any] = json.loads(said)["containers"]
    return found


@pytest.fixture(scope="module")
def finished() -> subprocess.CompletedProcess[str]:
    """Several pods, on one node."""
    words = ("--json", "--cuda-version", "13.4")
    return simulate(f"{TWO}---\n{WEB}---\n{ODD}", *words, machine="t4x4")


def test_pods_take_turns(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.stderr.count("| ring") == 2, finished.stderr
    for one, most in zip(rows(finished.stdout)[:2], (30, 60), strict=True):
        assert one["exit_code"] == 0
        assert 1 < one["share_achieved_percent"] < most + 5
        assert one["throttled_launches"] > 0
        assert one["throttled_seconds"] > 0


def test_a_workload_with_volumes_and_variables_runs_as_in_a_cluster(
    finished: subprocess.CompletedProcess[str],
) -> None:
    mains = [
        row for row in rows(finished.stdout) if row["container"] == "main" and "/web-" in row["pod"]
    ]

    assert len(mains) == 2
    for row in mains:
        said = f"hello-world a=$(b) filled on={row['gpus'][0]}"
        assert f"{row['pod'].removeprefix('default/')}/main | {said}" in finished.stderr


def test_a_failing_command_is_a_result_and_no_error(
    finished: subprocess.CompletedProcess[str],
) -> None:
    assert finished.returncode == 0, finished.stderr
    assert rows(finished.stdout)[-1]["exit_code"] == 127
    assert "executable file not found in $PATH" in finished.stderr


def test_the_driver_has_the_version_that_is_asked_for(
    finished: subprocess.CompletedProcess[str],
) -> None:
    assert "speaks 13040" in finished.stderr


def test_a_server_is_stopped_in_time_and_its_figures_are_shown() -> None:
    ended = simulate(SERVER, "--for", "1s", "--strict", "--json")

    (row,) = rows(ended.stdout)
    assert ended.returncode == 0, ended.stderr
    assert row["stopped"]
    assert row["gpus"]


def test_time_that_runs_out_is_status_1_and_names_what_still_ran() -> None:
    """However slow the machine is: more time where the container had not begun in it."""
    for seconds in (2, 10, 60):
        ended = simulate(SERVER, "--timeout", str(seconds), "--json")
        last = ended.stderr.splitlines()[-1]
        assert ended.returncode == 1
        if "no container was running yet" not in last:
            break

    assert last.startswith(
        f"gpumanager: not finished after {seconds} s: still running: server/main"
    )
    assert rows(ended.stdout)[0]["stopped"]


class Running:
    """A simulation of the server, which is up."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def reads(self, words: str, times: int = 1) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            while sum(words in line for line in self.lines) < times:
                self.lines.append((await self.process.stderr.readline()).decode())

    async def ends(self) -> tuple[bytes, str]:
        """Its output, and the last line that it wrote for people."""
        out, error = await self.process.communicate()
        return out, error.decode().splitlines()[-1]


@contextlib.asynccontextmanager
async def running(folder: Path, *words: str, text: str = SERVER) -> AsyncIterator[Running]:
    (folder / "pod.yaml").write_text(text)
    process = await asyncio.create_subprocess_exec(
        *(*SIMULATE, "--machine", "single", *words, str(folder / "pod.yaml")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=own_environment() | {"TMPDIR": "/tmp"},
    )
    found = Running(process)
    await found.reads("serving")
    yield found
    with contextlib.suppress(ProcessLookupError):
        process.kill()


@pytest.mark.parametrize(
    ("number", "times"),
    [
        pytest.param(signal.SIGINT, 1, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, 5, id="asked impatiently to end"),
    ],
)
async def test_an_ended_simulation_shows_its_figures_and_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, times: int
) -> None:
    async with running(tmp_path, "--json") as simulation:
        below = descendants(simulation.process.pid)
        files = disk_of(below)
        for _ in range(times):
            with contextlib.suppress(ProcessLookupError):
                simulation.process.send_signal(number)
            await asyncio.sleep(0.01)
        out, last = await simulation.ends()

    assert simulation.process.returncode == 130
    assert last == "gpumanager: interrupted"
    assert times > 1 or rows(out)[0]["stopped"]
    assert len(below) > 1
    await until(lambda: all(has_ended(pid) for pid in below))
    assert not files.exists()


async def test_a_killed_simulation_leaves_no_agent_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as simulation:
        below = descendants(simulation.process.pid)
        simulation.process.kill()
        await simulation.process.communicate()

    await until(lambda: all(has_ended(pid) for pid in below))


async def test_a_served_node_answers_until_it_is_ended(tmp_path: Path) -> None:
    """A pod that ends is started again; what to call is said."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    url = f"http://localhost:{port}"
    once = SERVER.replace("while sleep 1; do :; done", "sleep 0.2")
    async with running(tmp_path, "--serve", str(port), text=once) as simulation:
        await simulation.reads("serving", times=2)
        await until(lambda: list_nodes([url])[0].node is not None)
        simulation.process.send_signal(signal.SIGINT)
        out, _ = await simulation.ends()

    said = "".join(simulation.lines)
    assert f"gpumanager explain default/server --agent {url}" in said
    assert b"server/main" in out
    assert b"Simulated GPUs, single" in out
    assert simulation.process.returncode == 130


def test_a_workload_with_claims_has_its_volumes_and_variables_too() -> None:
    ended = simulate(f"{share_of('cores: 30, memory: 1Gi')}{CLAIMING}", "--strict", "--json")

    assert ended.returncode == 0, ended.stderr
    assert [(row["cores"], len(row["gpus"])) for row in rows(ended.stdout)] == [(30, 1), (30, 1)]
    assert {"0 configured", "1 configured"} <= {
        line.rpartition(" | ")[2] for line in ended.stderr.splitlines()
    }


def test_strict_fails_where_the_webhook_refuses_a_claim() -> None:
    ended = simulate(f"{share_of('coers: 30')}{CLAIMING}", "--strict", "--json")

    assert ended.returncode == 1
    assert "--strict: a pod was refused or failed" in ended.stderr
    (said,) = json.loads(ended.stdout)["webhook"]
    assert said["claim"] == "ResourceClaimTemplate default/share"
    assert len(said["errors"]) == 1


def judged(folder: Path, text: str, *results: ContainerResult) -> Report:
    (folder / "pod.yaml").write_text(text)
    machine = load_machine("single")
    return Report(machine, results, 0.0, *judge(read_manifest([folder / "pod.yaml"]), machine))


ANNOTATED = SERVER.replace("{name: server}", "{name: server, annotations: {ANNOTATION}}")
HIGH = "tencent.com/vcuda-core-limit: high"
MISSPELT = 'tencent.com/vcuda-corelimit: "80"'
REQUESTS = "spec.spec.devices.requests[0].exactly.capacity.requests"


@pytest.mark.parametrize(
    ("text", "said", "fails"),
    [
        (SERVER, "", False),
        (
            ANNOTATED.replace("ANNOTATION", HIGH),
            "the webhook would refuse it: annotation tencent.com/vcuda-core-limit: 'high'",
            True,
        ),
        (
            ANNOTATED.replace("ANNOTATION", MISSPELT),
            "vcuda-corelimit is unknown; did you mean tencent.com/vcuda-core-limit?",
            False,
        ),
        (
            share_of("coers: 30") + CLAIMING,
            f"the webhook would refuse it: {REQUESTS}.coers: no GPU has such a capacity",
            True,
        ),
        (
            share_of("cores: 30") + CLAIMING,
            f"the webhook warns: {REQUESTS}.memory is not said and means all of the GPU's",
            False,
        ),
        (
            share_of("memory: 200Gi, cores: 1") + CLAIMING,
            f"the webhook warns: {REQUESTS}.memory: 200Gi; no node has a GPU with",
            False,
        ),
    ],
)
def test_the_webhook_judges_pods_and_claims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str, *, fails: bool
) -> None:
    report = judged(tmp_path, text)

    pods = read_manifest([tmp_path / "pod.yaml"]).pods
    results = [ContainerResult(pod, pod.containers[0], exit_code=0) for pod in pods]
    print_report(Report(report.machine, results, 0.0, report.said, report.claims))

    assert said in " ".join(capsys.readouterr().out.split())
    assert report.failed == fails


@pytest.mark.parametrize(
    ("ended", "fails"),
    [
        ({"exit_code": 0}, False),
        ({"exit_code": 3}, True),
        ({"refused": "counted in blocks of 256 MiB: write 8"}, True),
    ],
)
def test_a_pod_that_was_refused_or_failed_fails_a_strict_run(
    tmp_path: Path, ended: dict[str, Any], *, fails: bool
) -> None:
    (tmp_path / "pod.yaml").write_text(SERVER)
    (pod,) = read_manifest([tmp_path / "pod.yaml"]).pods
    result = ContainerResult(pod, pod.containers[0], **ended)

    assert judged(tmp_path, SERVER, result).failed == fails


def descendants(pid: int) -> set[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(entry.name))
    found: set[int] = set()
    pending = [pid]
    while pending:
        pending += (below := children.get(pending.pop(), []))
        found.update(below)
    return found


def disk_of(processes: set[int]) -> Path:
    """The directory of the simulated node that one of them, its agent, was told of."""
    for pid in processes:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "--checkpoint-path" in words:
            return Path(words[words.index("--checkpoint-path") + 1]).parent
    raise AssertionError("no agent among the processes")
