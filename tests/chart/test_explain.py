"""`gpumanager explain` against the certificate that the chart's extender has, by helm."""

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner

from gpumanager.cli import explain, flags
from tests.chart import helm_program
from tests.chart.helm_program import rendered

pytestmark = pytest.mark.skipif(helm_program.found() is None, reason=helm_program.MISSING)

RECORD = {"pod": "research/train-7", "time": 0.0, "policy": "least-waste", "nodes": 3}
RECORD |= {"fitting": 0, "reasons": [], "best": None, "bound": None, "gpus": {}, "uid": "u"}


def secret() -> dict[str, bytes]:
    """What the extender's Secret has."""
    objects = (one for one in yaml.safe_load_all(rendered()) if one)
    (found,) = (one for one in objects if one["metadata"]["name"] == "gpu-manager-extender-tls")
    return {name: base64.b64decode(text) for name, text in found["data"].items()}


@asynccontextmanager
async def extender(folder: Path) -> AsyncIterator[str]:
    """One that knows a pod, behind the chart's certificate; where a port-forward would end."""
    for name, text in secret().items():
        (folder / name).write_bytes(text)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        assert request.path == "/explain/research/train-7"
        return web.json_response(RECORD)

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"https://localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def explained(*words: str) -> Any:
    asked = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpumanager", "explain", "research/train-7", "--json", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asked.communicate()
    assert asked.returncode == 0, err.decode()
    return json.loads(out)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_forwarded_port_is_asked_with_the_charts_ca(tmp_path: Path, host: str) -> None:
    async with extender(tmp_path) as url:
        here = url.replace("localhost", host)
        found = await explained("--extender", here, "--ca-file", str(tmp_path / "ca.crt"))

    assert found["nodes"] == 3


async def test_the_ca_is_found_where_the_chart_mounts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = next(
        one["spec"]["template"]["spec"]["containers"][0]
        for one in yaml.safe_load_all(rendered())
        if one and one["kind"] == "Deployment" and one["metadata"]["name"].endswith("-extender")
    )
    mounted = [one["mountPath"] for one in container["volumeMounts"]]

    assert str(flags.CHART_CA.parent) in mounted
    monkeypatch.setattr(flags, "CHART_CA", tmp_path / "ca.crt")
    async with extender(tmp_path) as url:
        words = ["research/train-7", "--extender", url, "--json"]
        done = await asyncio.to_thread(CliRunner().invoke, explain.command, words)
    assert json.loads(done.stdout) == RECORD
