"""A node with claims whose agent dies again and again: real directories, sockets, journal, CDI.

The kubelet here keeps to what the real one keeps to: a claim is in its checkpoint before it is
prepared; a failed call is made again; what is prepared is unprepared until that succeeds. Beside
that it does what happens on nodes: calls at once, calls that it does not wait for, calls after its
own restart, another claim of the same name.

After each start of the agent, what was answered is held, and asking again gives the same bytes;
nothing else is held but claims whose call is still to be repeated.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar
from unittest.mock import patch

from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.driver import ClaimDriver
from gpumanager.dra.health import HealthService
from gpumanager.dra.plugin import ClaimPlugin, PluginSockets
from gpumanager.errors import GpuManagerError
from gpumanager.grants.grant import ClaimSource
from gpumanager.grants.journal_file import JournalFile
from gpumanager.grants.node import Node
from gpumanager.grants.store import GrantStore
from gpumanager.isolation.cdi import CdiFiles
from gpumanager.isolation.edits import DeviceFiles
from gpumanager.isolation.table import Isolations
from gpumanager.kube.claims import device_name
from gpumanager.limits import allocation
from gpumanager.names import CLAIMS
from gpumanager.units import CORES_PER_GPU
from tests.crashes.disk import AgentDied, CrashingDisk, Fault
from tests.deviceplugin.admission.admission_node import VOLUMES, gpus
from tests.dra.claim_node import NODE, AnsweringApi, claim_item, pod_item, result
from tests.limits.open_door import virtual_manager

T = TypeVar("T")

LONGEST_GAP: Final = 60
"""Steps between a fault and the next; a claim's preparation has about twenty."""
TRIES: Final = 50


class PausingApi(AnsweringApi):
    """Lets others run before it answers: each call is a moment in which something else happens."""

    def __init__(self, disk: CrashingDisk) -> None:
        super().__init__()
        self.disk = disk

    async def claim(self, namespace: str, name: str, uid: str) -> Any:
        self.disk.step("GET claim")
        await asyncio.sleep(0)
        self.disk.step("claim is told")
        return await super().claim(namespace, name, uid)


@dataclass
class KubeletClaim:
    """A row of the kubelet's checkpoint. answer: what Prepare said last, None while it has not."""

    message: pb.Claim
    cores: dict[int, int]
    answer: bytes | None = None
    leaving: bool = False
    """Unprepare was called and has not succeeded yet."""


@dataclass
class ClaimHistory:
    """happened: how often what, over all histories."""

    root: Path
    random: Random
    faults: tuple[Fault, ...] = tuple(Fault)
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.topology = gpus(2)
        self.disk = CrashingDisk(self.root, self.random)
        self.api = PausingApi(self.disk)
        self.rows: dict[str, KubeletClaim] = {}
        self.number = 0
        self.generation = 0
        self.boot = bytes(16)
        self.starting = asyncio.Lock()

    # The agent's life.

    async def start(self) -> None:
        """As often as it takes. A fault may come while it starts, and while it is repaired."""
        for _ in range(TRIES):
            self._make_agent()
            self._arm()
            try:
                await self.driver.take_up()
                await self.driver.serve_again()
            except (AgentDied, GpuManagerError, OSError):
                self._count("start")
            else:
                self._count("start")
                if not self.disk.dead:
                    self.disk.arm(None, 0)
                    await self.driver.repair(())
                    self.disk.asleep = True
                    await self.check()
                    self.disk.asleep = False
                    self._arm()
                    return
            await self._bury()
        raise AssertionError("the agent never starts")

    def _make_agent(self) -> None:
        self.disk.asleep = False
        self.generation += 1
        self.virtual = virtual_manager(self.root / "vm")
        self.cdi = CdiFiles(self.root / "cdi")
        isolation = Isolations(self.virtual, VOLUMES, DeviceFiles(self.root / "dev"))
        journal = JournalFile(self.root / "allocations.json", room=6000)
        deps: dict[str, Any] = {
            "isolation": isolation,
            "claims": self.api,
            "cdi": self.cdi,
            "pool": NODE,
            "clock": lambda: 1_000.0,
        }
        node = Node(self.topology, GrantStore(journal, isolation), CLAIMS)
        self.driver = ClaimDriver(node, **deps)
        sockets = PluginSockets.under(self.root, self.root, "a")
        self.plugin = ClaimPlugin(self.driver, HealthService(node, NODE), sockets)

    def _arm(self) -> None:
        self.power = False
        if self.faults:
            kind = self.random.choice(self.faults)
            self.power = kind is Fault.POWER
            self.disk.arm(kind, self.random.randrange(LONGEST_GAP))
        else:
            self.disk.arm(None, 0)

    async def _bury(self) -> None:
        """What the kernel does for a process that has ended; and the machine, without power."""
        await asyncio.gather(*self.driver._running, return_exceptions=True)
        self.disk.asleep = True
        await self.virtual.stop()
        if self.disk.dead and self.power:
            self.disk.lose_power()
            if self.random.random() < 0.7:  # /var/run/cdi is in memory
                shutil.rmtree(self.root / "cdi", ignore_errors=True)
            self.boot = self.random.randbytes(16)

    async def restart(self) -> None:
        await self._bury()
        await self.start()

    async def _ask(self, what: str, call: Awaitable[T]) -> T | None:
        """None where the agent died meanwhile; then it is started again."""
        generation, answer = self.generation, None
        with suppress(AgentDied):
            answer = await call
        async with self.starting:
            self._count(what)
            if self.disk.dead and generation == self.generation:
                await self._bury()
                await self.start()
            elif self.disk.fault is None:
                self._arm()
        return answer if generation == self.generation else None

    def _count(self, what: str) -> None:
        for fault, met in self.disk.met:
            self.happened[f"{what}: {met}"] += 1
            self.happened[fault.value] += 1
        self.disk.met.clear()

    # What the kubelet does.

    async def prepare(self, *uids: str) -> None:
        """Once; whoever wants more asks again."""
        request = pb.NodePrepareResourcesRequest(claims=[self.rows[one].message for one in uids])
        answer = await self._ask("prepare", self.plugin.prepare(request, None))
        for uid in uids:
            if answer is not None:
                self._answered(uid, answer.claims[uid])

    def _answered(self, uid: str, answer: pb.NodePrepareResourceResponse) -> None:
        row = self.rows.get(uid)
        if answer.error:
            assert row is None or row.answer is None, f"{uid} was prepared: {answer.error}"
            self.happened["refused"] += 1
            return
        if row is None:
            return
        text = answer.SerializeToString(deterministic=True)
        assert row.answer in (None, text), f"{uid} is answered otherwise"
        row.answer = text
        self.happened["prepared"] += 1

    async def unprepare(self, *uids: str) -> None:
        """Until it has succeeded."""
        for uid in uids:
            self.rows[uid].leaving = True
        for _ in range(TRIES):
            claims = [self.rows[one].message for one in uids if one in self.rows]
            request = pb.NodeUnprepareResourcesRequest(claims=claims)
            answer = await self._ask("unprepare", self.plugin.unprepare(request, None))
            for uid in uids:
                if answer is not None and uid in self.rows and not answer.claims[uid].error:
                    del self.rows[uid]
                    self.happened["unprepared"] += 1
            if not self.rows.keys() & set(uids):
                return
        raise AssertionError(f"{uids} are never unprepared")

    def new_claim(self) -> str:
        """In the API, of one shape or another, and in the kubelet's checkpoint."""
        self.number += 1
        name, uid = f"c{self.number}", f"uid-{self.number}"
        self.claim_named(name, uid)
        return uid

    def claim_named(self, name: str, uid: str) -> None:
        results, uses, cores = self._shape(name)
        item = claim_item(name, *results, pods=(f"pod-{uid}",), uid=uid)
        self.api.items["default", name] = item
        self.api.pods["default", f"pod-{uid}"] = pod_item(f"pod-{uid}", uses)
        message = pb.Claim(namespace="default", name=name, uid=uid)
        self.rows[uid] = KubeletClaim(message, cores)

    def _shape(self, name: str) -> Any:
        names = [device_name(gpu.uuid) for gpu in self.topology.gpus]
        first, second = self.random.sample(range(2), 2)
        share = self.random.choice((10, 20, 30))
        one = result(names[first], share, "1Gi", "one")
        match self.random.randrange(6):
            case 0:  # two requests on two GPUs, each of a container
                other = result(names[second], share, "512Mi", "two")
                uses = {"a": [(name, "one")], "b": [(name, "two")]}
                return (one, other), uses, {first: share, second: share}
            case 1:  # two requests of one container, on one GPU
                other = result(names[first], share, "256Mi", "two")
                return (one, other), {"a": [(name, "")]}, {first: 2 * share}
            case 2:  # one request of two containers
                return (one,), {"a": [(name, "one")], "b": [(name, "one")]}, {first: share}
            case 3:  # looks only
                admin = {**one, "adminAccess": True}
                return (admin,), {"a": [(name, "one")]}, {}
            case 4:  # a whole GPU
                whole = result(names[first], CORES_PER_GPU, None, "one")
                return (whole,), {"a": [(name, "one")]}, {first: CORES_PER_GPU}
            case _:
                return (one,), {"a": [(name, "one")]}, {first: share}

    async def anything(self) -> None:
        """One event of many."""
        held = sorted(self.rows)
        some = self.random.choice(held) if held else None
        match self.random.randrange(12):
            case 0 | 1 | 2:
                await self.prepare(self.new_claim())
            case 3:  # two claims of one pod
                await self.prepare(self.new_claim(), self.new_claim())
            case 4:  # two pods at once
                await asyncio.gather(self.prepare(self.new_claim()), self.prepare(self.new_claim()))
            case 5 if some:  # a new sandbox, or a kubelet that has restarted
                await self.prepare(some)
            case 6 | 7 if some:
                await self.unprepare(some)
            case 8 if some:  # deleted by force; the kubelet has it all the same
                row = self.rows[some].message
                self.api.items.pop((row.namespace, row.name), None)
                await self.prepare(some)
            case 9 if some:  # one comes while another goes
                await asyncio.gather(self.prepare(self.new_claim()), self.unprepare(some))
            case 10 if some:  # another claim of the name, before the first is given back
                await self._replaced(some)
            case 11:  # the kubelet gave up, and the pod has gone
                uid = self.new_claim()
                await asyncio.gather(self.prepare(uid), self.unprepare(uid))
            case _:
                await self.restart()

    async def _replaced(self, uid: str) -> None:
        name = self.rows[uid].message.name
        self.number += 1
        new = f"uid-{self.number}"
        self.claim_named(name, new)
        await self.prepare(uid, new)
        await self.unprepare(uid)
        await self.prepare(new)

    async def end(self) -> None:
        """All pods go; nothing is left of any."""
        for uid in sorted(self.rows):
            await self.unprepare(uid)
        self.faults = ()
        await self.restart()
        assert self._left() == ([], []), self._left()
        assert dict(self.driver.node.journal.grants) == {}
        await self._bury()

    # What holds after each start.

    async def check(self) -> None:
        live: dict[str, list[Any]] = {}
        for grant in self.driver.live():
            assert isinstance(grant.source, ClaimSource)
            live.setdefault(grant.source.uid, []).append(grant)
        for uid, row in self.rows.items():
            if row.answer is not None and not row.leaving:
                assert uid in live, f"{uid} was answered, and is not held"
        assert live.keys() <= self.rows.keys(), f"held for nobody: {live.keys() - self.rows.keys()}"
        shared = {one.id for of in live.values() for one in of if one.isolation == "shim"}
        names = {self.cdi.path(uid).name for uid in live}
        assert self._left() == (sorted(shared), sorted(names)), (self._left(), shared, names)
        sockets = self.root / "vm/alloc"
        assert all((sockets / name / "vcuda.sock").is_socket() for name in shared)
        self._never_overcommitted()
        for uid in live.keys() & {u for u, row in self.rows.items() if row.answer is not None}:
            await self._same_answer(uid)

    def _never_overcommitted(self) -> None:
        used: Counter[int] = Counter()
        for row in self.rows.values():
            if row.answer is not None and not row.leaving:
                used.update(row.cores)
        assert all(cores <= CORES_PER_GPU for cores in used.values()), used

    async def _same_answer(self, uid: str) -> None:
        text = self.cdi.path(uid).read_bytes()
        request = pb.NodePrepareResourcesRequest(claims=[self.rows[uid].message])
        answer = await self.plugin.prepare(request, None)
        self._answered(uid, answer.claims[uid])
        assert self.cdi.path(uid).read_bytes() == text

    def _left(self) -> tuple[list[str], list[str]]:
        """Directories of allocations, and whatever lies where CDI files do."""
        directories, files = (
            sorted(one.name for one in (self.root / where).glob("*"))
            for where in ("vm/alloc", "cdi")
        )
        return directories, files


async def run_history(root: Path, seed: int, events: int, **more: Any) -> Counter[str]:
    """What happened."""
    history = ClaimHistory(root, Random(seed), **more)
    with history.disk.observed(), patch.object(allocation, "boot_id", lambda: history.boot):
        await history.start()
        for _ in range(events):
            await history.anything()
        await history.end()
    return history.happened
