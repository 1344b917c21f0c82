"""Pods of an API server on a simulated node: what is bound to it runs, and its status says so.

As a kubelet's pod workers: a deleted pod's containers are stopped, its claims unprepared, and then
it is taken from the API server. A pod that somebody else took from there ends the same way. A
container that has ended is not started again.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from gpumanager.errors import InputError
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused, ApiUnavailable, Object
from gpumanager.kube.informer import Informer
from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.manifest.pods import Pod, parse_pods
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.results import ContainerResult

RETRY_SECONDS: Final = 0.5
"""Between attempts to write a status."""


def pod_of(item: Object) -> Pod:
    """Return an object of the API server as nodes here run it; raises ValueError if they cannot."""
    try:
        (pod,) = parse_pods(
            json.dumps({**item, "apiVersion": "v1", "kind": "Pod"}), "the API server"
        )
    except InputError as error:
        raise ValueError(str(error)) from error
    return pod


class BoundPods:
    """Of one node, which has this name at the API server. results: by UID, of pods that ended."""

    path = "/api/v1/pods"

    def __init__(self, node: SimulatedNode, client: KubeClient, name: str) -> None:
        self.results: dict[str, tuple[ContainerResult, ...]] = {}
        self._node = node
        self._client = client
        self._informer = Informer(client, self, fields=f"spec.nodeName={name}")
        self._workers: dict[str, _PodWorker] = {}
        self._group = asyncio.TaskGroup()

    async def run(self) -> None:
        """Run until cancelled; containers that run then are killed."""
        async with self._group as group:
            group.create_task(self._informer.run())

    def name(self, item: Any) -> str:
        return str(item["metadata"]["uid"])

    def put(self, item: Any) -> None:
        uid = self.name(item)
        if uid not in self._workers:
            if (item.get("status") or {}).get("phase") in {"Failed", "Succeeded"}:
                return
            worker = self._workers[uid] = _PodWorker(self._node, self._client, pod_of(item))
            self._group.create_task(self._work(uid, worker))
        if item["metadata"].get("deletionTimestamp"):
            self._workers[uid].stop(there=True)

    def remove(self, item: Any) -> None:
        if worker := self._workers.get(self.name(item)):
            worker.stop(there=False)

    def only(self, names: set[str]) -> None:
        for uid in self._workers.keys() - names:
            self._workers[uid].stop(there=False)

    async def _work(self, uid: str, worker: "_PodWorker") -> None:
        self.results[uid] = await worker.run()
        del self._workers[uid]


class _PodWorker:
    def __init__(self, node: SimulatedNode, client: KubeClient, pod: Pod) -> None:
        self._node = node
        self._client = client
        self._pod = pod
        self._path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        self._running = asyncio.Event()
        self._stopping = asyncio.Event()
        self._there = True

    def stop(self, *, there: bool) -> None:
        """Stop the containers. there: whether the API server still has the pod."""
        self._there = self._there and there
        self._stopping.set()
        if not self._running.is_set():
            self._node.kubelet.delete(self._pod.uid)  # it waits for its claims, or not even that

    async def run(self) -> tuple[ContainerResult, ...]:
        results: tuple[ContainerResult, ...] = ()
        if rejection := await self._node.admit(self._pod):
            status = {"reason": rejection.reason, "message": rejection.message}
            await self._write_status({"phase": "Failed", **status})
        else:
            if self._stopping.is_set():  # before the kubelet knew it
                self._node.kubelet.delete(self._pod.uid)
            telling = asyncio.create_task(self._report_running())
            try:
                results = await self._node.run_admitted(
                    self._pod, running=self._running, stop=self._stopping
                )
            finally:
                telling.cancel()
                await asyncio.wait((telling,))
            well = all(one.exit_code == 0 for one in results)
            rows = []
            for one in results:
                if one.container.kind is ContainerKind.APP:
                    state: dict[str, Any] = {"terminated": {"exitCode": one.exit_code}}
                    if one.exit_code is None:  # it never ran: as far as anybody knows it waits
                        why = {"reason": "CreateContainerError", "message": one.refused or ""}
                        state = {"waiting": why}
                    rows.append({"name": one.container.name, "restartCount": 0, "state": state})
            phase = "Succeeded" if well else "Failed"
            await self._write_status({"phase": phase, "containerStatuses": rows})
        if self._stopping.is_set():
            self._node.kubelet.delete(self._pod.uid)
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._pod.uid}}
            await self._persist(lambda: self._client.delete(self._path, options))
        return results

    async def _report_running(self) -> None:
        await self._running.wait()
        apps = [one for one in self._pod.containers if one.kind is ContainerKind.APP]
        rows = [{"name": one.name, "restartCount": 0, "state": {"running": {}}} for one in apps]
        await self._write_status({"phase": "Running", "containerStatuses": rows})

    async def _write_status(self, status: Mapping[str, Any]) -> None:
        patch = {"metadata": {"uid": self._pod.uid}, "status": status}
        await self._persist(lambda: self._client.patch(f"{self._path}/status", patch))

    async def _persist(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Make a call however often it takes, while the API server has this very pod."""
        while self._there:
            with contextlib.suppress(ApiUnavailable):
                with contextlib.suppress(ApiRefused):
                    await call()
                return
            await asyncio.sleep(RETRY_SECONDS)
