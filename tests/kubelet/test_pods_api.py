"""The kubelet's Pods API as a client meets it, and what is read where it does not answer."""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet import wire
from gpumanager.kubelet.api import pods_v1alpha1_pb2 as pb
from gpumanager.kubelet.pods import KubeletPods, PodsUnavailable
from gpumanager.kubelet.pods_api import PodsApi, PreferredPods
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet.kubelet import SimulatedKubelet
from gpumanager.sim.kubelet.versions import KUBELET_1_36, KUBELET_1_37, KubeletVersion
from gpumanager.sim.manifest.pods import ContainerManifest, Pod

BOUND = 60.0
COMPUTE = (("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),)


@pytest.fixture
def version() -> KubeletVersion:
    return KUBELET_1_37


@pytest.fixture
async def kubelet(version: KubeletVersion) -> AsyncIterator[SimulatedKubelet]:
    base = Path(tempfile.mkdtemp(prefix="gm"))
    kubelet = SimulatedKubelet(base / "kubelet", Random(1), base / "pr.sock", version)
    await kubelet.start()
    yield kubelet
    await kubelet.stop()
    shutil.rmtree(base)


@pytest.fixture
async def api(kubelet: SimulatedKubelet) -> AsyncIterator[PodsApi]:
    api = PodsApi(kubelet.pods_api_socket, BOUND)
    yield api
    await api.close()


@pytest.fixture
def preferred(kubelet: SimulatedKubelet, api: PodsApi) -> PreferredPods:
    return PreferredPods(api, KubeletPods(kubelet.http.endpoint, deadline=BOUND))


def listed(kubelet: SimulatedKubelet, name: str) -> Pod:
    asks = {VCORE: 30, VMEMORY: 8}
    containers = (
        ContainerManifest("first", ContainerKind.INIT, ("x",), asks=asks),
        ContainerManifest("beside", ContainerKind.SIDECAR, ("x",), COMPUTE),
        ContainerManifest("main", ContainerKind.APP, ("x",), asks=asks),
    )
    pod = Pod("here", name, containers, annotations={"tencent.com/x": "1", "other.io/y": "2"})
    kubelet.pods = kubelet.pods.add(pod)
    return pod


async def test_a_pod_is_read_as_from_pods(kubelet: SimulatedKubelet, api: PodsApi) -> None:
    listed(kubelet, "one")

    found = await api.pods()

    assert found == await KubeletPods(kubelet.http.endpoint, deadline=BOUND).pods()
    kinds = [one.kind for one in found[0].containers]
    assert kinds == [ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP]
    assert [one.graphics for one in found[0].containers] == [True, False, True]
    assert found[0].annotations == {"tencent.com/x": "1"}


async def test_a_list_that_fails_does_not_end_another_that_is_under_way() -> None:
    """Two of the agent's tasks ask at once; whoever is cancelled leaves the kubelet unanswered."""
    asked, fail = [asyncio.Event(), asyncio.Event()], asyncio.Event()
    calls = iter((0, 1))

    async def lists(_request: pb.ListPodsRequest, context: Any) -> pb.ListPodsResponse:
        number = next(calls)
        asked[number].set()
        await fail.wait()
        if number == 0:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        await failed.wait()
        return pb.ListPodsResponse()

    failed = asyncio.Event()
    directory = Path(tempfile.mkdtemp(prefix="gm"))
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((wire.pods_handler(lists),))
    server.add_insecure_port(f"unix:{directory / 'p.sock'}")
    await server.start()
    api = PodsApi(directory / "p.sock", BOUND)
    first = asyncio.create_task(api.pods())
    await asked[0].wait()
    second = asyncio.create_task(api.pods())
    await asked[1].wait()

    fail.set()
    with pytest.raises(PodsUnavailable, match="not now"):
        await first
    failed.set()

    assert await second == ()
    await api.close()
    await server.stop(None)
    shutil.rmtree(directory)


async def test_a_pod_with_the_same_bytes_is_not_read_again_and_a_changed_one_is(
    kubelet: SimulatedKubelet, api: PodsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    same, changed = listed(kubelet, "same"), listed(kubelet, "changed")
    parsed: list[str] = []
    parse = PodsApi._parse

    def counted(self: PodsApi, body: bytes) -> object:
        found = parse(self, body)
        parsed.append(found.name)
        return found

    monkeypatch.setattr(PodsApi, "_parse", counted)
    await api.pods()
    kubelet.running(changed.uid)

    found = {pod.uid: pod.phase for pod in await api.pods()}

    assert sorted(parsed[:2]) == ["changed", "same"]
    assert parsed[2:] == ["changed"]
    assert found == {same.uid: "Pending", changed.uid: "Running"}


async def test_bytes_that_are_no_pod_are_not_a_list(
    kubelet: SimulatedKubelet, api: PodsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(kubelet, "one")
    monkeypatch.setattr(kubelet.pods_api, "_bytes", lambda _: b"\xff\xff")

    with pytest.raises(PodsUnavailable, match="not a pod"):
        await api.pods()


async def test_a_variable_with_a_value_from_elsewhere_says_nothing(
    kubelet: SimulatedKubelet, api: PodsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(kubelet, "one")
    variable = pb.EnvVar(name=COMPUTE[0][0], valueFrom=pb.EnvVarSource())
    spec = pb.PodSpec(containers=[pb.Container(name="main", env=[variable])])
    body = pb.Pod(metadata=pb.ObjectMeta(uid="u", name="one"), spec=spec).SerializeToString()
    monkeypatch.setattr(kubelet.pods_api, "_bytes", lambda _: body)

    ((container,),) = [pod.containers for pod in await api.pods()]

    assert container.graphics


async def test_where_the_api_does_not_answer_pods_is_read_and_said_once(
    kubelet: SimulatedKubelet, preferred: PreferredPods, caplog: pytest.LogCaptureFixture
) -> None:
    pod = listed(kubelet, "one")
    with caplog.at_level(logging.INFO, "gpumanager.kubelet.pods_api"):
        for ready in (True, True, False, False, True):
            kubelet.pods_api.ready = ready
            assert [one.uid for one in await preferred.pods()] == [pod.uid]

    assert kubelet.pods_api.lists == 3
    assert kubelet.http.requests == 2
    said = [record.getMessage() for record in caplog.records]
    assert ["Pods API" in one and "instead" not in one for one in said] == [True, False, True]
    assert "Kubelet is initializing; /pods is read instead" in said[1]


async def test_a_kubelet_that_starts_again_is_asked_again(
    kubelet: SimulatedKubelet, preferred: PreferredPods
) -> None:
    pod = listed(kubelet, "one")
    await preferred.pods()

    await kubelet.stop()
    with pytest.raises(PodsUnavailable):
        await preferred.pods()
    await kubelet.start()

    assert [one.uid for one in await preferred.pods()] == [pod.uid]
    assert kubelet.pods_api.lists == 2


@pytest.mark.parametrize("version", [KUBELET_1_36])
async def test_a_kubelet_without_the_api_is_read_by_pods(
    kubelet: SimulatedKubelet, preferred: PreferredPods, api: PodsApi
) -> None:
    listed(kubelet, "one")

    with pytest.raises(PodsUnavailable, match="no Pods API"):
        await api.pods()

    assert len(await preferred.pods()) == 1
