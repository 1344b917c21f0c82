"""`gpumanager extender`: its flags, and that it serves."""

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from gpumanager.cli.extender import read_address, read_policy
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.cli.commands import kubeconfig


def test_a_cluster_s_policy_is_read_from_its_flags() -> None:
    assert str(read_policy("", "")) == "least-waste"
    assert str(read_policy("topology=0.3,spread=0.7", "")) == "spread=0.7,topology=0.3"
    assert read_policy("numa=strict", "binpack").gpus == "binpack"


def test_addresses_are_read_as_gpu_admission_reads_them() -> None:
    assert read_address("127.0.0.1:3456") == ("127.0.0.1", 3456)
    assert read_address(":3456") == ("", 3456)
    assert read_address("[::1]:3456") == ("::1", 3456)


async def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    api = SimulatedApiServer()
    await api.start()
    config = kubeconfig(tmp_path, api.url)
    flags = ["--kubeconfig", config, "--address", "127.0.0.1:0", "--identity", "me"]
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
