"""The simulated kubelet over its real sockets, with a plugin that remembers what it was asked."""

import asyncio
import http.client
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import grpc.aio
import pytest

from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet import wire as pod_resources
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet import kubelet, plugins
from gpumanager.sim.kubelet.kubelet import (
    CreateContainerError,
    DevicesNotReady,
    SimulatedKubelet,
)
from gpumanager.sim.kubelet.pods import Phase
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from tests.contracts.kubelet.fake_plugin import FakePlugin
from tests.waiting import until


class Node:
    """A kubelet and two plugins."""

    def __init__(self, base: Path) -> None:
        self.directory = base / "kubelet"
        self.kubelet = SimulatedKubelet(self.directory, Random(5), base / "pod-resources.sock")
        self.core = FakePlugin(self.directory, VCORE, [f"c{number}" for number in range(10)])
        self.memory = FakePlugin(self.directory, VMEMORY, [f"m{number}" for number in range(6)])

    async def start(self) -> None:
        await self.kubelet.start()
        for plugin in (self.core, self.memory):
            await plugin.start()
            await plugin.register()
        await self.kubelet.wait_for_devices((VCORE, VMEMORY), 120)

    async def stop(self) -> None:
        await self.kubelet.stop()
        for plugin in (self.core, self.memory):
            await plugin.stop()

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.kubelet.http.port, timeout=600)
        connection.request("GET", path)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    base = Path(tempfile.mkdtemp(prefix="gm"))
    node = Node(base)
    await node.start()
    yield node
    await node.stop()
    shutil.rmtree(base)


def container(name: str, kind: ContainerKind = ContainerKind.APP, **asks: int) -> ContainerManifest:
    names = {"cores": VCORE, "blocks": VMEMORY}
    return ContainerManifest(
        name, kind, ("x",), asks={names[key]: value for key, value in asks.items()}
    )


def pod(*containers: ContainerManifest, name: str = "pod") -> Pod:
    return Pod("default", name, containers or (container("main", cores=2, blocks=1),))


async def test_a_plugin_is_asked_for_its_options_before_register_returns(node: Node) -> None:
    assert node.core.calls[0] == ("options", ())


async def test_a_plugin_of_another_version_is_refused(node: Node) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="not supported by kubelet"):
        await node.core.register(version="v1alpha")


async def test_a_plugin_that_does_not_serve_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "DIAL_SECONDS", 0.2)
    silent = FakePlugin(node.directory, "example.com/silent", ["x"])

    with pytest.raises(grpc.aio.AioRpcError, match="failed to dial device plugin"):
        await silent.register()


async def test_each_resource_is_asked_for_its_preference_and_then_allocated(node: Node) -> None:
    assert await node.kubelet.admit(pod()) is None

    assert len(node.core.called("preferred")[0]) == 10
    assert node.core.called("allocate") == [("c0", "c1")]
    assert node.memory.called("allocate") == [("m0",)]
    assert node.core.called("pre_start") == []


async def test_resources_come_in_any_order(node: Node) -> None:
    first: set[str] = set()
    order: list[str] = []
    for plugin in (node.core, node.memory):

        async def note(name: str = plugin.resource) -> None:
            order.append(name)

        plugin.during_allocate = note
    for number in range(12):
        order.clear()
        one = pod(name=f"p{number}")
        await node.kubelet.admit(one)
        first.add(order[0])
        node.kubelet.delete(one.uid)

    assert first == {VCORE, VMEMORY}


async def test_the_plugins_answers_are_merged_for_the_runtime(node: Node) -> None:
    one = pod()
    await node.kubelet.admit(one)

    options = await node.kubelet.prepare(one, one.containers[0])

    assert options.environment.keys() == {"RESOURCE", "core.sock", "memory.sock"}
    assert [mount.container_path for mount in options.mounts] == ["/etc/vcuda"]
    assert node.core.called("pre_start") == [("c0", "c1")]
    assert node.memory.called("pre_start") == [("m0",)]


async def test_the_checkpoint_names_who_holds_what(node: Node) -> None:
    one = pod()
    await node.kubelet.admit(one)

    content = json.loads((node.directory / "kubelet_internal_checkpoint").read_text())

    entries = {row["ResourceName"]: row for row in content["Data"]["PodDeviceEntries"]}
    assert entries[VCORE]["PodUID"] == one.uid
    assert entries[VCORE]["ContainerName"] == "main"
    assert entries[VCORE]["DeviceIDs"] == {"-1": ["c0", "c1"]}
    assert len(content["Data"]["RegisteredDevices"][VCORE]) == 10


async def test_a_refusal_of_the_plugin_fails_the_pod_with_its_text(node: Node) -> None:
    node.core.refuse = {"allocate": "no free GPU: all are taken"}

    rejection = await node.kubelet.admit(one := pod())

    assert str(rejection) == "UnexpectedAdmissionError: no free GPU: all are taken"
    assert node.kubelet.pods.statuses[one.uid].phase is Phase.FAILED
    node.core.refuse = {}
    assert await node.kubelet.admit(pod(container("m", cores=10, blocks=6), name="next")) is None


async def test_a_pod_larger_than_the_node_never_reaches_the_plugin(node: Node) -> None:
    rejection = await node.kubelet.admit(pod(container("main", cores=11)))

    assert rejection is not None
    assert rejection.reason == "UnexpectedAdmissionError"
    assert "Requested: 11, Available: 10" in rejection.message
    assert node.core.called("preferred") == []


async def test_an_init_containers_devices_are_given_to_the_next_container_again(
    node: Node,
) -> None:
    await node.kubelet.admit(
        pod(
            container("init", ContainerKind.INIT, cores=2),
            container("first", cores=2),
            container("second", cores=3),
        )
    )

    allocated = node.core.called("allocate")
    assert allocated[0] == allocated[1]
    assert not set(allocated[1]) & set(allocated[2])
    assert len(node.core.called("preferred")) == 2


async def test_a_larger_container_must_include_what_the_init_container_had(node: Node) -> None:
    await node.kubelet.admit(
        pod(container("init", ContainerKind.INIT, cores=2), container("main", cores=5))
    )

    init, main = node.core.called("allocate")
    assert node.core.must_include == [(), init]
    assert set(init) < set(main)


async def test_a_failing_start_is_tried_again(node: Node) -> None:
    await node.kubelet.admit(one := pod())
    node.core.refuse, node.core.refuse_times = {"pre_start": "not yet"}, 2

    await node.kubelet.prepare(one, one.containers[0])

    assert len(node.core.called("pre_start")) == 3


async def test_a_start_that_keeps_failing_ends_as_create_container_error(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet, "START_BACK_OFF", 0.001)
    await node.kubelet.admit(one := pod())
    node.core.refuse = {"pre_start": "never"}

    with pytest.raises(CreateContainerError, match="CreateContainerError: never"):
        await node.kubelet.prepare(one, one.containers[0])


async def test_a_pod_is_listed_while_it_is_being_admitted(node: Node) -> None:
    seen: list[str] = []

    async def look() -> None:
        _, content = await asyncio.to_thread(node.get, "/pods")
        seen.extend(item["metadata"]["name"] for item in json.loads(content)["items"])

    node.core.during_allocate = look
    await node.kubelet.admit(pod())

    assert seen == ["pod"]
    assert (await asyncio.to_thread(node.get, "/else"))[0] == 404


async def test_devices_of_a_pod_that_ended_can_be_had_again(node: Node) -> None:
    await node.kubelet.admit(one := pod(container("main", cores=10)))
    node.kubelet.ended(one.uid, failed=False)

    assert await node.kubelet.admit(pod(container("main", cores=10), name="next")) is None
    assert node.kubelet.pods.statuses[one.uid].phase is Phase.SUCCEEDED


async def test_unhealthy_devices_are_not_given_out(node: Node) -> None:
    node.core.change({f"c{number}" for number in range(9)})
    await until(lambda: node.kubelet.books.capacity(VCORE) == 1)

    await node.kubelet.admit(pod(container("main", cores=1)))

    assert node.core.called("allocate") == [("c9",)]


async def test_a_plugin_that_died_leaves_nothing_to_give_out(node: Node) -> None:
    await node.core.stop()
    await until(lambda: node.kubelet.books.capacity(VCORE) == 0)

    rejection = await node.kubelet.admit(pod())

    assert rejection is not None
    assert f"cannot allocate unhealthy devices {VCORE}" in rejection.message


async def test_a_restart_deletes_every_socket_and_keeps_who_holds_what(node: Node) -> None:
    await node.kubelet.admit(one := pod())
    node.kubelet.running(one.uid)

    await node.kubelet.restart()

    assert not (node.directory / "core.sock").exists()
    assert node.kubelet.books.capacity(VCORE) == 0
    for plugin in (node.core, node.memory):
        await plugin.stop()
        await plugin.start()
        await plugin.register()
    await node.kubelet.wait_for_devices((VCORE, VMEMORY), 120)
    await node.kubelet.admit(pod(name="next"))
    assert {"c0", "c1"}.isdisjoint(node.core.called("allocate")[1])
    assert node.kubelet.pods.statuses[one.uid].phase is Phase.RUNNING


async def test_pod_resources_show_who_holds_what_but_no_init_container(node: Node) -> None:
    one = pod(container("init", ContainerKind.INIT, cores=2), container("main", cores=2))
    await node.kubelet.admit(one)

    async with pod_resources.dial(node.kubelet.pod_resources_socket) as channel:
        client = pod_resources.PodResourcesClient(channel, 5)
        listed = await client.list()
        got = await client.get("default", "pod")
        with pytest.raises(grpc.aio.AioRpcError, match="not found"):
            await client.get("default", "other")

    (main,) = listed.pod_resources[0].containers
    assert main.name == "main"
    assert [row.device_ids[0] for row in main.devices] == list(node.core.called("allocate")[1])
    assert got.pod_resources == listed.pod_resources[0]


async def test_looking_during_an_admission_gives_devices_out_twice_as_in_the_real_one(
    node: Node,
) -> None:
    ending = pod(container("main", cores=1), name="ending")
    await node.kubelet.admit(ending)

    async def end_and_look() -> None:
        node.kubelet.ended(ending.uid, failed=False)
        async with pod_resources.dial(node.kubelet.pod_resources_socket) as channel:
            await pod_resources.PodResourcesClient(channel, 5).list()

    node.core.during_allocate = end_and_look
    await node.kubelet.admit(pod(container("a", cores=2), container("b", cores=2), name="two"))

    first, second = node.core.called("allocate")[1:]
    assert node.kubelet.books.held(VCORE) == set(first) | set(second)


async def test_waiting_for_a_plugin_ends(node: Node) -> None:
    with pytest.raises(DevicesNotReady, match=r"no plugin offered example\.com/none within 0 s"):
        await node.kubelet.wait_for_devices(("example.com/none",), 0.01)
