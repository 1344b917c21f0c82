"""Claims on a simulated node, from the slice to programs behind the shim."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gpu_faults import SimulatedFaults

from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.kube.claims import device_name
from gpumanager.names import CLAIM_DRIVER, VCORE, VMEMORY
from gpumanager.sim.agent import AgentProcess
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.container_runtime import CONTAINERD_1_6
from gpumanager.sim.kubelet.dra.drivers import DriverInstance
from gpumanager.sim.node import SimulatedNode
from tests.dra.node_of_claims import NodeOfClaims, WaitingForNobody
from tests.sim.claims.claim_objects import request
from tests.waiting import until

pytestmark = pytest.mark.namespaces

AT_WORK = "test -S /etc/vcuda/vcuda.sock && echo socket; cuda-play launch --kernel 2ms --seconds 4"
SAY = 'echo "gpus=$VCUDA_GPUS"; test -S /etc/vcuda/vcuda.sock && echo socket'


@pytest.fixture
async def node() -> AsyncIterator[NodeOfClaims]:
    async with NodeOfClaims() as found:
        yield found


async def test_a_share_runs_behind_the_shim_and_leaves_nothing(node: NodeOfClaims) -> None:
    await until(node.slice)
    await node.claim("a", request("gpu", 30, "2Gi"))
    pod = await node.pod("p", {"main": [("a", "gpu")]}, SAY)

    (result,) = await node.run_pod(pod)

    assert result.exit_code == 0, (node.printed, node.node.agent.last_words())
    assert "socket" in node.printed
    disk = node.node.disk
    assert list(disk.cdi[1].iterdir()) == []
    assert list((disk.virtual / "alloc").iterdir()) == []


async def test_containers_that_share_a_claim_share_its_memory(node: NodeOfClaims) -> None:
    """Two containers of 1.5 GiB each do not both fit into 2 GiB."""
    await node.claim("a", request("gpu", 60, "2Gi"))
    command = "cuda-play launch --kernel 2ms --seconds 2 --memory 1536MiB"
    uses = [("a", "gpu")]
    pod = await node.pod("p", {"one": uses, "two": uses}, command)

    results = await node.run_pod(pod)

    assert sorted(bool(one.exit_code) for one in results) == [False, True], node.printed


async def test_pods_that_share_a_claim_are_let_in_and_the_last_one_ends_it(
    node: NodeOfClaims,
) -> None:
    await node.claim("a", request("gpu", 60, "2Gi"))
    first = await node.pod("first", {"main": [("a", "gpu")]}, SAY)
    second = await node.pod("second", {"main": [("a", "gpu")]}, f"cuda-play memory; {SAY}")

    results = await asyncio.gather(node.run_pod(first), node.run_pod(second))

    assert [one.exit_code for (one,) in results] == [0, 0], node.printed
    assert node.printed.count("socket") == 2
    assert list(node.node.disk.cdi[1].iterdir()) == []


async def test_a_second_pod_of_a_claim_does_not_start_with_a_share_beside_it() -> None:
    """The kubelet has prepared the claim, and does not ask its driver again."""
    flags = {"interface": "both", "claims-gpus": 2, "gpu-move-delay": "0.1s"}
    async with NodeOfClaims(flags=flags) as node:
        await until(lambda: node.offered() == 2)
        await node.claim("a", request("gpu", 30, "1Gi"))
        first = await node.pod("first", {"main": [("a", "")]}, "exec sleep 600")
        running = asyncio.create_task(node.run_pod(first))
        await until(lambda: list(node.node.disk.cdi[1].iterdir()))
        second = await node.pod(
            "second", {"main": [("a", "")]}, SAY, limits={VCORE: "30", VMEMORY: "4"}
        )

        (result,) = await node.run_pod(second)

        assert "second (main) asks for tencent.com/vcuda-core beside claim default/a" in (
            result.refused or ""
        )
        assert "by one claim" in (result.refused or "")
        node.node.kill_containers()
        await running


async def test_a_gpu_in_use_is_offered_first_while_it_is_in_use(node: NodeOfClaims) -> None:
    def first_free() -> int:
        found = node.slice()
        assert found is not None
        return int(found["spec"]["devices"][0]["attributes"]["freeCores"]["int"])

    await until(node.slice)
    await node.claim("a", request("gpu", 30, "1Gi"))
    pod = await node.pod("p", {"main": [("a", "gpu")]}, "cuda-play launch --kernel 2ms --seconds 3")
    running = asyncio.create_task(node.run_pod(pod))

    await until(lambda: first_free() == 70)
    await running
    await until(lambda: first_free() == 100)


async def test_what_runs_and_what_waits_outlive_agent_and_kubelet(node: NodeOfClaims) -> None:
    async def run(name: str) -> "asyncio.Task[Any]":
        await node.claim(name, request("gpu", 30, "1Gi"))
        pod = await node.pod(name, {"main": [(name, "gpu")]}, f"echo {name}; exec sleep 600")
        return asyncio.create_task(node.run_pod(pod))

    await until(node.slice)
    runs = await run("runs")
    await until(lambda: "runs" in node.printed)
    await node.node.kill_agent()
    waits = await run("waits")
    events = node.server.objects.list
    await until(lambda: any(one["reason"].startswith("FailedPrepare") for one in events("events")))
    await node.node.kubelet.restart()
    await until(lambda: node.slice() is None)

    await node.node.start_agent()

    await until(lambda: "waits" in node.printed)
    await until(node.slice)
    assert not runs.done()
    node.node.kill_containers()
    await asyncio.gather(runs, waits)


async def test_a_runtime_without_cdi_is_refused_before_any_pod_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SimulatedNode, "start_agent", WaitingForNobody.start_agent)
    async with NodeOfClaims(runtime=CONTAINERD_1_6) as node:
        await until(lambda: "enable_cdi" in node.node.disk.agent_log.read_text())

        assert node.slice() is None
        assert list(node.node.disk.plugins_registry.iterdir()) == []


async def test_a_gpu_that_falls_ill_is_tainted_and_its_pods_are_told(node: NodeOfClaims) -> None:
    """And both are taken back when it is well again."""

    ill, running = await a_pod_runs(node)

    SimulatedFaults(node.node.gpus).remap(ill, failed=True)

    await until(lambda: [*taints(node)] == [device_name(ill)])
    await until(lambda: is_told(node, "Unhealthy"))
    SimulatedFaults(node.node.gpus).restore(ill)
    await until(lambda: taints(node) == {})
    await until(lambda: is_told(node, "Healthy"))
    node.node.kill_containers()
    await running


async def test_a_taint_outlasts_a_restart_of_the_agent(node: NodeOfClaims) -> None:
    """A pod would get the GPU in between, and who tolerates the taint for a minute one more."""
    first, second = [gpu.uuid for gpu in node.node.machine.topology.gpus][:2]
    SimulatedFaults(node.node.gpus).remap(first, failed=True)
    await until(lambda: taints(node))
    before = taints(node)
    calls = len(node.server.calls)

    SimulatedFaults(node.node.gpus).slow(0.01)
    await node.node.restart_agent()
    SimulatedFaults(node.node.gpus).remap(second, failed=True)
    await until(lambda: len(taints(node)) == 2)

    assert taints(node)[device_name(first)] == before[device_name(first)]
    written = [
        json.loads(one.body)["spec"]["devices"]
        for one in node.server.calls[calls:]
        if one.resource == "resourceslices" and one.method in {"PATCH", "POST"}
    ]
    assert written
    for devices in written:
        assert device_name(first) in [one["name"] for one in devices if "taints" in one]


async def test_an_xid_is_told_by_its_event_and_evicts_where_that_is_wanted() -> None:
    """No round of questions comes before the test gives up; the GPU recovers by rounds alone."""
    flags = {"unhealthy-taint": "NoExecute", "health-check-period": "600s"}
    async with NodeOfClaims(flags=flags) as node:
        ill, running = await a_pod_runs(node)

        SimulatedFaults(node.node.gpus).xid(ill, 79)

        await until(lambda: is_told(node, "Unhealthy"))
        await until(lambda: taints(node))
        (taint,) = taints(node)[device_name(ill)]
        assert (taint["key"], taint["effect"]) == ("gpu.tencent.com/unhealthy", "NoExecute")
        assert taint["timeAdded"]
        node.node.kill_containers()
        await running


def taints(node: NodeOfClaims) -> dict[str, list[dict[str, str]]]:
    """By device."""
    devices = (node.slice() or {}).get("spec", {}).get("devices", ())
    return {one["name"]: one["taints"] for one in devices if "taints" in one}


def is_told(node: NodeOfClaims, word: str) -> bool:
    """In the status of the pod."""
    (pod,) = node.server.objects.list("pods")
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(f"'{word}'" in str(one.get("allocatedResourcesStatus")) for one in statuses)


async def a_pod_runs(node: NodeOfClaims) -> tuple[GpuUUID, "asyncio.Task[Any]"]:
    """Its GPU, and how it ends."""
    await until(node.slice)
    await node.claim("a", request("gpu", 60, "2Gi"))
    pod = await node.pod("p", {"main": [("a", "gpu")]}, "echo up; sleep 600")
    running = asyncio.create_task(node.run_pod(pod))
    await until(lambda: "up" in node.printed)
    (grant,) = JournalFile(node.node.disk.checkpoint / FILE_NAME).load().live()
    (gpu,) = grant.gpus
    return gpu, running


async def test_a_gpu_that_comes_after_the_agent_is_offered_with_what_is_known_of_it(
    node: NodeOfClaims,
) -> None:
    late, running = await a_pod_runs(node)
    SimulatedFaults(node.node.gpus).unplug(late)
    await node.node.restart_agent()
    await until(lambda: node.offered() == 3)
    await until(lambda: is_told(node, "Unhealthy"))

    SimulatedFaults(node.node.gpus).restore(late)

    await until(lambda: node.offered() == 4)
    devices = (node.slice() or {})["spec"]["devices"]
    assert [one["attributes"].get("architecture") for one in devices] == [{"string": "Turing"}] * 4
    node.node.kill_containers()
    await running


async def test_a_kubelet_that_is_restarted_has_the_slice_again_and_ends_the_claims(
    node: NodeOfClaims,
) -> None:
    before: Mapping[str, Any] | None = await until(node.slice)
    assert before is not None
    await node.claim("a", request("gpu", 60, "2Gi"))
    pod = await node.pod("p", {"main": [("a", "gpu")]}, AT_WORK)
    running = asyncio.create_task(node.run_pod(pod))
    await until(lambda: "socket" in node.printed)

    await node.node.kubelet.restart()

    def again() -> bool:
        found = node.slice()
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    await until(again)
    (result,) = await running
    assert result.exit_code == 0, node.printed
    await until(lambda: list(node.node.disk.cdi[1].iterdir()) == [])


async def test_a_claim_of_which_nobody_knows_any_more_is_released_once_nothing_runs_with_it(
    node: NodeOfClaims,
) -> None:
    """Pods and claims deleted by force, and the kubelet's checkpoint lost: nobody unprepares."""
    running, specs = [], dict[str, Path]()
    cdi = node.node.disk.cdi[1]
    for name in ("a", "b"):
        await node.claim(name, request("gpu", 30, "2Gi"))
        command = f"echo {name}; cuda-play launch --kernel 2ms --seconds 600"
        pod = await node.pod(name, {"main": [(name, "gpu")]}, command)
        running.append(asyncio.create_task(node.run_pod(pod)))
        await until(partial(node.printed.__contains__, name))
        (specs[name],) = set(cdi.iterdir()) - set(specs.values())
    kubelet = node.node.kubelet.dra
    assert kubelet is not None

    kubelet.claims.clear()
    for name in ("a", "b"):
        await node.server.remove(Key("pods", "default", name))
        await node.server.remove(Key("resourceclaims", "default", name))
    node.node.runner.containers[-1].kill()

    await until(lambda: not specs["b"].exists())
    assert specs["a"].exists()
    directories = node.node.disk.virtual / "alloc"
    await until(lambda: len(list(directories.iterdir())) == 1)
    node.node.kill_containers()
    await until(lambda: not specs["a"].exists())
    await until(lambda: not list(directories.iterdir()))
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)


CONNECTS_AFTER = 0.4
"""Seconds from when a busy kubelet says that it has taken an instance. Until then it calls the one
before."""


async def follow_late(
    instance: DriverInstance, on_change: Callable[[], None], follow: Any = DriverInstance.follow
) -> None:
    await asyncio.sleep(CONNECTS_AFTER)
    await follow(instance, on_change)


async def test_the_next_agent_takes_over_without_a_call_that_fails(
    node: NodeOfClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `maxSurge: 1` does it. Programs that start meanwhile are let in, and held to 2 GiB."""
    await until(node.slice)
    monkeypatch.setattr(DriverInstance, "follow", follow_late)
    await node.claim("a", request("gpu", 60, "2Gi"))
    play = "cuda-play launch --kernel 2ms --seconds 0.1 --memory"
    command = (
        f"while sleep 0.05; do {play} 1GiB >/dev/null && echo held || echo failed; "
        f"{play} 3GiB >/dev/null 2>&1 && echo unlimited; done"
    )
    pod = await node.pod("p", {"main": [("a", "gpu")]}, command)
    running = asyncio.create_task(node.run_pod(pod))
    await until(lambda: "held" in node.printed)
    await node.claim("b", request("gpu", 10, "256Mi"))
    await node.pod("q", {"main": [("b", "gpu")]}, SAY)
    (uid,) = (
        one["metadata"]["uid"]
        for one in node.server.objects.list("resourceclaims")
        if one["metadata"]["name"] == "b"
    )
    asked = pb.Claim(namespace="default", name="b", uid=uid)
    answers, ending = list[str](), asyncio.Event()
    manager = node.node.kubelet.dra
    assert manager is not None

    async def call_all_the_time() -> None:
        while not ending.is_set():
            prepared = await manager.drivers.get(CLAIM_DRIVER).prepare([asked])
            answers.append(prepared.claims[uid].error)
            unprepared = await manager.drivers.get(CLAIM_DRIVER).unprepare([asked])
            answers.append(unprepared.claims[uid].error)

    async def calls(number: int) -> None:
        """More of them, or the one that failed."""
        until_now = len(answers)
        await until(lambda: calling.done() or len(answers) > until_now + number)

    calling = asyncio.create_task(call_all_the_time())
    await calls(10)
    before, after = node.node.agent, AgentProcess(node.node.disk, node.node._agent_flags)
    try:
        await after.start(node.node.kubelet.http.endpoint)
        lock = node.node.disk.checkpoint / "agent.lock"
        await until(lambda: calling.done() or f"process {after.pid}\n" in lock.read_text())
        await calls(20)
        await before.stop()
        await calls(20)
        ending.set()
        await calling
        programs = len(node.printed)
        await until(lambda: len(node.printed) > programs + 2)

        assert set(answers) == {""}
        assert set(node.printed) == {"held"}
        node.node.kill_containers()
        await running
        await until(lambda: not list(node.node.disk.cdi[1].iterdir()))
    finally:
        await after.stop()


async def test_a_cordoned_gpu_gets_no_new_claims_until_it_is_uncordoned(node: NodeOfClaims) -> None:
    await until(node.slice)
    (first, *_) = [one["name"] for one in node.slice()["spec"]["devices"]]  # type: ignore[index]
    uuid = node.attributes(first)["uuid"]["string"]

    def tainted() -> list[str]:
        devices = (node.slice() or {"spec": {"devices": []}})["spec"]["devices"]
        return [one["name"] for one in devices if "taints" in one]

    await node.annotate({"tencent.com/gpu-cordon": uuid})
    await until(lambda: tainted() == [first])

    await node.annotate({"tencent.com/gpu-cordon": None})
    await until(lambda: tainted() == [])
