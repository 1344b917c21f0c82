"""A node for the tests of claims: GPUs, an API server that only answers, and an agent that may die.

Everything that the driver does to the world goes through `World.step`, once before and once after,
so that a test can end the agent between any two of them. A dead agent does nothing more.
"""

import asyncio
import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpumanager.dra.driver import ClaimDriver, ClaimRef
from gpumanager.dra.plan import TO_DO
from gpumanager.gpu.values import Topology
from gpumanager.grants.journal_file import JournalFile
from gpumanager.grants.node import Node
from gpumanager.grants.refusals import Refused, RetryLater
from gpumanager.grants.store import GrantStore
from gpumanager.ids import AllocationID, PodUID
from gpumanager.isolation.cdi import CdiFiles
from gpumanager.isolation.edits import DeviceFiles
from gpumanager.isolation.table import Isolations
from gpumanager.kube.claims import (
    AllocatedDevice,
    NotAClaim,
    PodClaims,
    ResourceClaim,
    device_name,
    read_claim,
    read_pod_claims,
)
from gpumanager.limits.values import Limit
from gpumanager.names import CLAIMS
from gpumanager.sim.in_memory import SimulatedLimits
from tests.deviceplugin.admission.admission_node import VOLUMES, gpus

NODE = "n1"


class AgentDied(BaseException):
    """The agent ends here, as by SIGKILL."""


@dataclass
class World:
    """at: the step at which the agent dies; None for never. taken: steps so far."""

    at: int | None = None
    taken: int = 0
    dead: bool = False

    def step(self) -> None:
        if self.dead or self.taken == self.at:
            self.dead = True
            raise AgentDied
        self.taken += 1

    def live_again(self, at: int | None = None) -> None:
        self.at, self.taken, self.dead = at, 0, False


@dataclass
class MortalSockets(SimulatedLimits):
    world: World = field(default_factory=World)

    async def open(self, allocation: AllocationID, limits: Sequence[Limit]) -> Path:
        self.world.step()
        directory = await super().open(allocation, limits)
        self.world.step()
        return directory

    async def close(self, allocation: AllocationID) -> None:
        self.world.step()
        await super().close(allocation)
        self.world.step()


class MortalJournal(JournalFile):
    """Dies before and after each step of a write."""

    def __init__(self, path: Path, world: World) -> None:
        super().__init__(path)
        self.world = world
        self.syncs = True
        """Whether the disk does: if not, what was written may be there all the same."""

    def _force(self) -> None:
        super()._force()
        if not self.syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _append(self, text: bytes) -> None:
        self.world.step()
        super()._append(text)
        self.world.step()

    def _write(self, contents: bytes) -> None:
        self.world.step()
        super()._write(contents)
        self.world.step()

    def _replace(self) -> None:
        self.world.step()
        super()._replace()
        self.world.step()


class MortalCdi(CdiFiles):
    def __init__(self, directory: Path, world: World) -> None:
        super().__init__(directory)
        self.world = world

    def write(self, claim: str, text: str) -> None:
        self.world.step()
        half = self.path(claim).with_name(self.path(claim).name + ".tmp")
        self.directory.mkdir(parents=True, exist_ok=True)
        half.write_text(text[: len(text) // 2])
        self.world.step()
        super().write(claim, text)
        self.world.step()

    def remove(self, claim: str) -> None:
        self.world.step()
        super().remove(claim)
        self.world.step()


@dataclass
class AnsweringApi:
    """Claims and pods as JSON objects. silent: it answers nobody; gate: it does once set."""

    items: dict[tuple[str, str], Any] = field(default_factory=dict)
    pods: dict[tuple[str, str], Any] = field(default_factory=dict)
    silent: bool = False
    asked: int = 0
    stale: set[str] = field(default_factory=set)
    """Claims of which it was told that they were unprepared."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def claim(self, namespace: str, name: str, uid: str) -> ResourceClaim:
        self.asked += 1
        await self.gate.wait()
        if self.silent:
            raise RetryLater("the API server does not answer")
        item = self.items.get((namespace, name))
        if item is None:
            raise NotAClaim(f"claim {namespace}/{name} is gone")
        found = read_claim(item)
        if found.uid != uid:
            raise NotAClaim(f"claim {namespace}/{name} now has the UID {found.uid}, not {uid}")
        return found

    async def pod(self, namespace: str, name: str, uid: PodUID) -> PodClaims | None:
        item = self.pods.get((namespace, name))
        found = read_pod_claims(item) if item else None
        return found if found and found.uid == uid else None

    def allocated(self, uid: str) -> tuple[AllocatedDevice, ...] | None:
        """The watch is never behind."""
        found = (one for one in self.items.values() if one["metadata"]["uid"] == uid)
        item = next(found, None)
        return None if item is None else read_claim(item).devices

    async def reread(self, namespace: str, name: str, uid: str) -> tuple[AllocatedDevice, ...]:
        if self.silent:
            raise RetryLater("the API server does not answer")
        item = self.items.get((namespace, name))
        found = read_claim(item) if item else None
        return found.devices if found and found.uid == uid else ()

    async def named_by_pod(self, namespace: str, name: str) -> bool:
        named = any(
            pod.namespace == namespace and name in {use.claim for use in pod.uses}
            for pod in map(read_pod_claims, self.pods.values())
        )
        return named and (namespace, name) not in self.items

    def unprepared(self, uid: str) -> None:
        self.stale.add(uid)

    def requests(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        return {key: tuple(read_claim(item).requests) for key, item in self.items.items()}


class ClaimNode:
    """One node; `restart` is a new agent on it."""

    def __init__(self, root: Path, topology: Topology | None = None) -> None:
        self.topology = topology or gpus(2)
        self.root = root
        self.world = World()
        self.api = AnsweringApi()
        self.virtual = MortalSockets(root / "vm", world=self.world)
        self.cdi = MortalCdi(root / "cdi", self.world)
        self.driver = self._agent()

    def _agent(self) -> ClaimDriver:
        self.virtual.open_now.clear()
        self.journal = MortalJournal(self.root / "allocations.json", self.world)
        isolation = Isolations(self.virtual, VOLUMES, DeviceFiles(self.root / "dev"))
        deps: dict[str, Any] = {
            "isolation": isolation,
            "claims": self.api,
            "cdi": self.cdi,
            "pool": NODE,
            "clock": lambda: 1_000.0,
        }
        node = Node(self.topology, GrantStore(self.journal, isolation), CLAIMS)
        return ClaimDriver(node, **deps)

    async def restart(self, dies_at: int | None = None) -> None:
        self.world.live_again(dies_at)
        self.driver = self._agent()
        await self.driver.take_up()
        await self.driver.serve_again()

    def device(self, index: int) -> str:
        return device_name(self.topology.gpus[index].uuid)

    def claim(self, name: str, *results: dict[str, Any], **more: Any) -> ClaimRef:
        """In the API, allocated and reserved for a pod of the same name."""
        pod = more.pop("pod", name)
        item = claim_item(name, *results, pods=(pod,), **more)
        self.api.items["default", name] = item
        if ("default", pod) not in self.api.pods:
            self.api.pods["default", pod] = pod_item(pod, {"main": [(name, "")]})
        return ClaimRef("default", name, item["metadata"]["uid"])

    def share(self, gpu: int, cores: int, memory: str = "1Gi", request: str = "gpu") -> Any:
        return result(self.device(gpu), cores, memory, request)

    async def prepare(self, claim: ClaimRef) -> tuple[Any, ...]:
        answer = await self.driver.prepare(claim)
        assert not isinstance(answer, Refused), answer
        return answer

    async def refused(self, claim: ClaimRef) -> str:
        answer = await self.driver.prepare(claim)
        assert isinstance(answer, Refused), answer
        assert answer.text.endswith(f". {TO_DO[answer.reason]}"), "says what its reader can do"
        return answer.text

    def left(self) -> tuple[set[str], set[str], set[str]]:
        """Directories, sockets and CDI files that there are, without their contents."""
        files = {path.name for path in self.cdi.directory.glob("*")}
        return set(self.virtual.kept), set(self.virtual.open_now), files


def result(device: str, cores: int | None, memory: str | None, request: str = "gpu") -> Any:
    consumed = {"cores": None if cores is None else str(cores), "memory": memory}
    return {
        "request": request,
        "driver": "gpu.tencent.com",
        "pool": NODE,
        "device": device,
        "shareID": f"share-{device}-{request}",
        "consumedCapacity": {name: text for name, text in consumed.items() if text is not None},
    }


def claim_item(name: str, *results: Any, pods: Sequence[str] = (), **more: Any) -> Any:
    return {
        "metadata": {"uid": more.get("uid", f"uid-{name}"), "namespace": "default", "name": name},
        "status": {
            "allocation": {"devices": {"results": list(results), "config": more.get("config", [])}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods],
        },
    }


def pod_item(name: str, uses: Mapping[str, Sequence[tuple[str, str]]]) -> Any:
    """uses: by container, each a claim and a request of it, empty for all."""
    claims = dict.fromkeys(claim for used in uses.values() for claim, _ in used)
    return {
        "metadata": {"uid": f"uid-{name}", "namespace": "default", "name": name},
        "spec": {
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
            "containers": [
                {
                    "name": container,
                    "resources": {
                        "claims": [
                            {"name": claim} | ({"request": request} if request else {})
                            for claim, request in used
                        ]
                    },
                }
                for container, used in uses.items()
            ],
        },
    }
