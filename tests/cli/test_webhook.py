"""`gpumanager webhook`: its flags, and that it serves, with each kind of certificate."""

import asyncio
import base64
import contextlib
import os
import re
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli import run, webhook
from gpumanager.cli.webhook_parts import WebhookSettings, serve
from gpumanager.errors import GpuManagerError
from gpumanager.scheduler.certificates.x509 import issue, make_authority
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, DefaultMemory, Unschedulable
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.cli.commands import kubeconfig

NAMES = ("gpu-manager-webhook.kube-system.svc", "localhost")
SECRET = Key("secrets", "kube-system", "gpu-manager-webhook")


@pytest.fixture(autouse=True)
def _outside_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    ("flags", "policy"),
    [
        ([], AdmissionPolicy()),
        (["--scheduler-name=s"], AdmissionPolicy(scheduler_name="s")),
        (["--default-memory=share"], AdmissionPolicy(default_memory=DefaultMemory.SHARE)),
        (["--default-memory=1GiB"], AdmissionPolicy(default_memory=4)),
        (["--default-memory=257MiB"], AdmissionPolicy(default_memory=2)),
        (["--node-name=keep"], AdmissionPolicy(pin=False)),
        (["--unschedulable=deny"], AdmissionPolicy(unschedulable=Unschedulable.DENY)),
        (["--fail=closed"], AdmissionPolicy(fail_open=False)),
    ],
)
def test_a_flag_becomes_the_policy_it_names(
    flags: list[str], policy: AdmissionPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings_of(monkeypatch, *flags).policy == policy


def test_the_certificate_is_for_the_service_the_api_server_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settings_of(monkeypatch, "--service", "gpu/hook").names[0] == "hook.gpu.svc"


async def test_told_to_stop_it_sends_others_away_and_serves_who_still_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(monkeypatch, "--plain-http", "--drain=300") as (port, task):
        url = f"http://127.0.0.1:{port}"
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)

        with pytest.raises(urllib.error.HTTPError, match="503"):
            await asyncio.to_thread(ask, f"{url}/readyz")
        assert await asyncio.to_thread(ask, f"{url}/healthz") == 200
        assert not task.done()


async def test_told_to_stop_without_waiting_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, "--plain-http", "--drain=0") as (port, task):
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(120):
            await task

        with pytest.raises(urllib.error.URLError, match="refused"):
            await asyncio.to_thread(ask, f"http://127.0.0.1:{port}/healthz")


@pytest.fixture
async def server() -> AsyncIterator[SimulatedApiServer]:
    simulated = SimulatedApiServer()
    await simulated.start()
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        hooks = [{"name": "pods.gpu-manager.tencent.com", "clientConfig": {}}]
        await simulated.create(kind, {"metadata": {"name": "gpu-manager"}, "webhooks": hooks})
    yield simulated
    await simulated.stop()


def settings_of(monkeypatch: pytest.MonkeyPatch, *flags: str) -> WebhookSettings:
    """What these flags say."""
    seen: list[WebhookSettings] = []

    async def remember(settings: WebhookSettings) -> None:
        seen.append(settings)

    with monkeypatch.context() as patch:
        patch.setattr(webhook, "serve", remember)
        assert run(["webhook", "--address=127.0.0.1", "--port=0", *flags]) == 0
    return seen[0]


@contextlib.asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch, *flags: str
) -> AsyncIterator[tuple[int, asyncio.Task[None]]]:
    """The port of a webhook with these flags."""
    settings = await asyncio.to_thread(settings_of, monkeypatch, *flags)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(settings, port.set_result))
    try:
        async with asyncio.timeout(120):
            await asyncio.wait((task, port), return_when=asyncio.FIRST_COMPLETED)
            yield await port, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ask(url: str, context: ssl.SSLContext | None = None) -> Any:
    with urllib.request.urlopen(url, timeout=600, context=context) as answer:
        return answer.status


def believing(authority: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.decode())


async def test_it_serves_with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, year = datetime.now(UTC), timedelta(days=365)
    authority = make_authority(now, year)
    identity = issue(authority, NAMES, now, year)
    (tmp_path / "crt").write_bytes(identity.certificate)
    (tmp_path / "key").write_bytes(identity.key)
    files = (f"--tls-cert-file={tmp_path / 'crt'}", f"--tls-key-file={tmp_path / 'key'}")

    async with serving(monkeypatch, *files) as (port, _):
        url = f"https://localhost:{port}/readyz"
        assert await asyncio.to_thread(ask, url, believing(authority.certificate)) == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            await asyncio.to_thread(ask, url)


async def test_its_own_certificate_is_believed_and_told_of_in_its_metrics(
    server: SimulatedApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '{"default": {"quota": {"A100": 2}}}'
    place = {"name": "quota", "namespace": "gpu"}
    await server.create("configmaps", {"metadata": place, "data": {"gpu_quota": text}})
    flags = (
        f"--kubeconfig={kubeconfig(tmp_path, server.url)}",
        "--service=default/localhost",
        "--quota-configmap=gpu/quota",
    )

    async with serving(monkeypatch, *flags) as (port, _):
        hook = server.objects.get(Key("validatingwebhookconfigurations", "", "gpu-manager"))
        bundle = base64.b64decode(hook["webhooks"][0]["clientConfig"]["caBundle"])
        url, context = f"https://localhost:{port}/metrics", believing(bundle)
        async with asyncio.timeout(120):
            said = ""
            while "quota_understood 1.0" not in said:
                said = await asyncio.to_thread(read, url, context)

    ends = re.search(r"\ngpumanager_webhook_certificate_expiry_timestamp_seconds (\S+)", said)
    assert ends
    assert 80 < (float(ends[1]) - datetime.now(UTC).timestamp()) / 86400 < 91
    assert "gpumanager_webhook_node_kinds 0.0" in said
    assert server.objects.get(SECRET)["data"]["tls.key"]


def read(url: str, context: ssl.SSLContext) -> str:
    with urllib.request.urlopen(url, timeout=600, context=context) as answer:
        return str(answer.read().decode())


async def test_a_port_that_is_taken_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, "--plain-http") as (port, _):
        assert await asyncio.to_thread(ask, f"http://127.0.0.1:{port}/healthz") == 200
        flags = ("--plain-http", f"--port={port}")
        second = await asyncio.to_thread(settings_of, monkeypatch, *flags)
        with pytest.raises(GpuManagerError, match=f"port {port}: .*in use"):
            await serve(second)
