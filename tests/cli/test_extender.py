"""`gpumanager extender`: its flags and what it says when they are wrong."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gpumanager.cli import run
from gpumanager.cli.extender import freeze_first_lists, read_address, read_policy
from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.scheduler.extender.service import Extender
from gpumanager.sim.cluster.server import SimulatedApiServer

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here}}}}]
clusters: [{{name: here, cluster: {{server: "{url}"}}}}]
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--address", "nowhere"], "write HOST:PORT"),
        (["--address", ":99999"], "write HOST:PORT"),
        (["--tls-cert-file", "x"], "needs --tls-private-key-file"),
        (["--client-ca-file", "x"], "needs --tls-cert-file"),
        (["--tls-cert-file", "no", "--tls-private-key-file", "none"], "no certificate"),
        (["--max-request-mib", "0"], "--max-request-mib"),
        (["--kubeconfig", "no-such-file"], "no-such-file"),
        (["--policy", "bestest"], "--policy: 'bestest' is not a policy: write one of least-waste"),
        (["--policy", "binpack=strict"], "only topology and numa can"),
        (["--gpu-policy", "numa"], "--gpu-policy: 'numa' is not a policy for GPUs"),
        (["--quota-configmap", "gpuquota"], "write NAMESPACE/NAME"),
    ],
)
def test_wrong_flags_are_told_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["extender", *arguments]) == 2

    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_without_an_api_server_there_is_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["extender"]) == 1

    assert "no --kubeconfig is given" in capsys.readouterr().err


def test_a_cluster_s_policy_is_read_from_its_flags() -> None:
    assert str(read_policy("", "")) == "least-waste"
    assert str(read_policy("topology=0.3,spread=0.7", "")) == "spread=0.7,topology=0.3"
    assert read_policy("numa=strict", "binpack").gpus == "binpack"


def test_addresses_are_read_as_gpu_admission_reads_them() -> None:
    assert read_address("127.0.0.1:3456") == ("127.0.0.1", 3456)
    assert read_address(":3456") == ("", 3456)
    assert read_address("[::1]:3456") == ("::1", 3456)


async def test_the_first_lists_are_frozen_once_both_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = asyncio.Event()
    monkeypatch.setattr(gc, "freeze", frozen.set)
    extender = Extender(KubeClient(Access("http://127.0.0.1:1")))
    freezing = asyncio.create_task(freeze_first_lists(extender))

    extender.nodes.listed.set()
    await asyncio.sleep(0)
    assert not frozen.is_set()

    extender.pods.listed.set()
    await freezing
    assert frozen.is_set()


async def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    api = SimulatedApiServer()
    await api.start()
    config = tmp_path / "kubeconfig"
    config.write_text(KUBECONFIG.format(url=api.url))
    flags = ["--kubeconfig", str(config), "--address", "127.0.0.1:0", "--identity", "me"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpumanager", "extender", *flags),
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(300):
            line = b""
            while b"listening on " not in line:
                line = await process.stderr.readline()
                assert line
            url = line.decode().split("listening on ")[1].strip()
            answer = await asyncio.to_thread(urllib.request.urlopen, f"{url}/healthz")
            assert answer.read() == b"ok\n"
            answer.close()
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        await api.stop()
