"""An extender and a webhook beside a simulated API server, and who keeps asking them."""

import asyncio
import contextlib
import datetime as dt
import json
import random
import signal
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import ClientError, ClientSession

from gpumanager.gpu.inventory import inventory
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.certificates.making import issue, make_authority
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.machines import load_machine

QUOTA: Final = {
    "research": {"quota": {"T4": 3, "V100": 2}},
    "serving": {"quota": {"T4": 2, "V100": 1}},
    "vision": {"quota": {"T4": 1}},
}
SHAPES: Final = ((30, 8), (50, 16), (100, 0), (20, 4), (500, 0))
"""Cores and blocks of those who ask; the last will never fit."""

LASTING: Final = 40
"""So many steps a bound pod stays."""

STEP_SECONDS: Final = 0.4


@contextlib.asynccontextmanager
async def started(*words: object) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(*map(str, words))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()


@contextlib.asynccontextmanager
async def asked(
    machines: Mapping[str, str], folder: Path, extender: int, webhook: int
) -> AsyncIterator[None]:
    """machines: of each node. extender, webhook: ports they serve on meanwhile."""
    api = SimulatedApiServer()
    await api.start()
    for name, machine in machines.items():
        await api.create("nodes", _node(name, machine))
    named = {"name": "gpuquota", "namespace": "kube-system"}
    quota = {"metadata": named, "data": {"gpu_quota": json.dumps(QUOTA)}}
    await api.create("configmaps", quota)
    async with (
        started(*_command("extender", api, folder, extender), "--leader-elect=false"),
        started(*_command("webhook", api, folder, webhook), *_certificate(folder)),
    ):
        asking = asyncio.create_task(_ask(api, list(machines), extender, webhook))
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await api.stop()


def _node(name: str, machine: str) -> Any:
    said = inventory(load_machine(machine).topology, [])
    labels = {"tkestack.io/gpu-model": "T4" if machine == "t4x4" else "V100"}
    return {"metadata": {"name": name, "annotations": said, "labels": labels}}


def _command(part: str, api: SimulatedApiServer, folder: Path, port: int) -> tuple[object, ...]:
    cluster = {"name": "here", "cluster": {"server": api.url}}
    user = {"name": "me", "user": {"token": "any"}}
    context = {"name": "here", "context": {"cluster": "here", "user": "me"}}
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [cluster],
                "users": [user],
                "contexts": [context],
                "current-context": "here",
            }
        )
    )
    where = (
        ("--address", f"127.0.0.1:{port}")
        if part == "extender"
        else ("--address", "127.0.0.1", "--port", port)
    )
    return (sys.executable, "-m", "gpumanager", part, "--kubeconfig", path, *where)


def _certificate(folder: Path) -> tuple[object, ...]:
    """For 60 days."""
    now, life = dt.datetime.now(dt.UTC), dt.timedelta(days=60)
    made = issue(make_authority(now, life), ["webhook"], now, life)
    (folder / "tls.crt").write_bytes(made.certificate)
    (folder / "tls.key").write_bytes(made.key)
    return ("--tls-cert-file", folder / "tls.crt", "--tls-key-file", folder / "tls.key")


async def _ask(api: SimulatedApiServer, nodes: list[str], extender: int, webhook: int) -> None:
    """Pods come, are looked at, placed as kube-scheduler would, and go."""
    chance = random.Random(0)  # noqa: S311 - repeatable on purpose
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with ClientSession() as session:
        made = deque[Key]()
        for number in count():
            await asyncio.sleep(STEP_SECONDS * chance.uniform(0.5, 1.5))
            pod = _pod(f"job-{number}", chance)
            with contextlib.suppress(ClientError):
                review = f"https://127.0.0.1:{webhook}/mutate"
                await session.post(review, json=_review(pod), ssl=trusting)
            stored = await api.create("pods", pod)
            made.append(Key("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]))
            with contextlib.suppress(ClientError):
                await _place(session, f"http://127.0.0.1:{extender}/scheduler", nodes, stored)
            if len(made) > LASTING:
                await api.remove(made.popleft())


async def _place(session: ClientSession, url: str, nodes: list[str], stored: Any) -> None:
    async with session.post(f"{url}/filter", json={"Pod": stored, "NodeNames": nodes}) as answer:
        fitting = (await answer.json()).get("NodeNames")
    if not fitting:
        return
    scored = {"Pod": stored, "NodeNames": fitting}
    await session.post(f"{url}/prioritize", json=scored)
    said = stored["metadata"]
    names = {"PodName": said["name"], "PodNamespace": said["namespace"], "PodUID": said["uid"]}
    await session.post(f"{url}/bind", json={**names, "Node": fitting[0]})


def _pod(name: str, chance: random.Random) -> Any:
    cores, blocks = chance.choice(SHAPES)
    limits = {VCORE: str(cores)} | ({VMEMORY: str(blocks)} if blocks else {})
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": limits, "requests": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": chance.choice(list(QUOTA))},
        "spec": {"containers": [container]},
        "status": {"phase": "Pending"},
    }


def _review(pod: Any) -> Any:
    said = pod["metadata"]
    request = {
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": said["namespace"],
        "object": pod,
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "uid": said["name"],
        "userInfo": {"username": "somebody"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
