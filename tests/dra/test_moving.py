"""GPUs that go from device plugins to claims and back, while pods run and agents die."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from gpumanager.agent.interfaces import until_answerable
from gpumanager.agent.moves import ALL_GPUS
from gpumanager.dra.driver import ClaimRef
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.offers import GpuOffer, OfferFile
from gpumanager.kube.claims import device_name
from gpumanager.kube.pod import PodView
from gpumanager.names import CLAIMS, DEVICE_PLUGINS, VCORE
from tests.deviceplugin.admission.admission_node import container, pod
from tests.dra.claim_node import AgentDied
from tests.dra.moving_node import QUIET, MovingNode

STEPS = 40
"""More than one restart and a move take."""


@pytest.fixture
async def node(tmp_path: Path) -> MovingNode:
    found = MovingNode(tmp_path)
    await found.restart()
    found.read_all()
    return found


def devices(node: MovingNode) -> list[int]:
    return [g.index for g in node.topology.gpus if g.uuid in node.offered_as_devices()]


def claims(node: MovingNode) -> list[int]:
    return [g.index for g in node.topology.gpus if g.uuid in node.named(node.slice)]


async def test_a_device_plugin_node_becomes_a_claims_node_gpu_by_gpu(node: MovingNode) -> None:
    first, second = pod("first", container(100, 0)), pod("second", container(60, 4))
    assert await node.device_pod(first)
    assert await node.device_pod(second)

    await node.restart(ALL_GPUS)
    await node.arrive()
    assert (len(devices(node)), len(claims(node))) == (0, 1)
    assert not await node.device_pod(pod("late", container(10, 1)))
    node.judge()
    node.end_device_pod(first)
    await node.arrive()
    assert len(claims(node)) == 2
    node.end_device_pod(second)
    await node.arrive()

    assert (devices(node), claims(node)) == ([], [0, 1, 2])
    assert node.allocator.node.journal.live() == ()


async def test_and_back_while_claims_are_prepared(node: MovingNode) -> None:
    await node.restart(ALL_GPUS)
    await node.arrive()
    claim = node.claim("a", min(node.slice), 60, 4)
    assert not await node.prepare(claim)
    (busy,) = node.allocated()

    await node.restart(0)
    await node.arrive()

    assert busy not in node.offered_as_devices()
    assert (len(devices(node)), claims(node)) == (2, [])
    assert await node.device_pod(pod("p", container(100, 0)))
    node.judge()
    assert not await node.prepare(claim)
    await node.end_claim(claim)
    await node.arrive()
    assert devices(node) == [0, 1, 2]


async def test_a_gpu_is_offered_by_nobody_before_it_has_been_quiet(node: MovingNode) -> None:
    await node.restart(1)
    node.read_all()
    assert (devices(node), claims(node)) == ([1, 2], [])

    await node.move(QUIET)
    await node.move()
    await node.move(QUIET - 1)
    node.read_all()
    assert claims(node) == []
    await node.move(1)
    node.read_all()

    assert (devices(node), claims(node)) == ([1, 2], [0])


async def test_a_claim_that_is_allocated_and_not_prepared_keeps_its_gpu(node: MovingNode) -> None:
    await node.restart(ALL_GPUS)
    await node.arrive()
    claim = node.claim("a", min(node.slice), 60, 4)

    await node.restart(0)
    await node.arrive()

    assert len(devices(node)) == 2
    assert not await node.prepare(claim)


async def test_a_claim_allocated_too_late_gets_the_gpu_once_it_is_free(node: MovingNode) -> None:
    """The scheduler wrote the allocation after the GPU had gone over."""
    await node.restart(ALL_GPUS)
    await node.arrive()
    await node.restart(0)
    await node.arrive()
    pods = [pod(f"p{index}", container(100, 0)) for index in range(3)]
    for one in pods:
        assert await node.device_pod(one)
    (first, *_) = sorted(node.answers.items())
    uuid = first[1].envs["VCUDA_GPUS"]
    claim = node.claim("late", device_name(GpuUUID(uuid)), 60, 4)

    assert "device plugins" in await node.prepare(claim)
    await node.arrive()
    assert "device plugins" in await node.prepare(claim)
    node.judge()
    (ended,) = (one for one in pods if one.uid == first[0][0])
    node.end_device_pod(ended)
    await node.arrive()

    assert not await node.prepare(claim)
    node.judge()
    await node.end_claim(claim)
    await node.arrive()
    assert node.offered_as_devices() == {gpu.uuid for gpu in node.topology.gpus}


async def test_an_allocate_that_comes_too_late_is_not_granted_there(node: MovingNode) -> None:
    """The kubelet chose device IDs before it read that they are unhealthy, and asks after all."""
    old = dict(node.heard)
    await node.restart(ALL_GPUS)
    await node.arrive()
    node.heard = old

    assert not await node.device_pod(pod("late", container(30, 2)))
    assert node.allocator.node.journal.live() == ()


async def test_an_allocate_that_was_under_way_is_granted_on_the_gpu_that_leaves(
    node: MovingNode,
) -> None:
    node.claims_gpus = 3
    old = dict(node.heard)
    await node.move()
    node.heard = old

    assert await node.device_pod(pod("p", container(30, 2)))
    await node.arrive()

    assert (len(devices(node)), len(claims(node))) == (0, 2)
    node.judge()


async def test_an_allocate_that_comes_too_late_is_granted_where_there_is_room(
    node: MovingNode,
) -> None:
    old = dict(node.heard)
    await node.restart(2)
    await node.arrive()
    (left,) = node.offered_as_devices()
    node.heard = old

    for index in range(3):
        assert await node.device_pod(pod(f"p{index}", container(30, 2)))

    assert {one.gpu for one in node.had()} == {left}


async def test_what_is_free_stays_so_until_schedulers_know_that_there_is_less(
    node: MovingNode,
) -> None:
    """GPU 0 is full and GPU 1 has to go: a pod that was bound for the last free one is admitted."""
    pods = [pod(name, container(100, 0)) for name in ("first", "second", "late")]
    assert await node.device_pod(pods[0])
    assert await node.device_pod(pods[1])
    node.claims_gpus = 1
    await node.move()
    node.read_all()
    healthy = [one for one in node.heard[VCORE] if one.healthy]
    assert len(healthy) == 200

    assert await node.device_pod(pods[2])
    await node.arrive()

    assert claims(node) == []
    assert len([one for one in node.heard[VCORE] if one.healthy]) == 200
    node.judge()


async def test_a_pod_that_is_bound_and_not_admitted_delays_the_withdrawal(node: MovingNode) -> None:
    bound = pod("bound", container(100, 0))
    node.listing.listed[bound.uid] = bound
    node.claims_gpus = 3

    await node.arrive()

    assert devices(node) == [0, 1, 2]
    assert await node.device_pod(bound)
    await node.arrive()
    assert (len(devices(node)), len(claims(node))) == (0, 2)


async def test_a_gpu_that_a_stale_checkpoint_kept_back_is_in_the_slice_again(
    node: MovingNode,
) -> None:
    """An ended pod is in the kubelet's checkpoint still when the next agent starts, and a claim has
    its GPU: the GPU stays with claims, and is offered again once the pod is seen to have ended."""
    ended = pod("ended", container(30, 2))
    assert await node.device_pod(ended)
    await node.restart(ALL_GPUS)
    node.end_device_pod(ended)
    await node.arrive()
    assert claims(node) == [0, 1, 2]
    (uuid,) = {edits.envs["VCUDA_GPUS"] for edits in node.answers.values()}
    claim = node.claim("a", device_name(GpuUUID(uuid)), 60, 4)
    assert not await node.prepare(claim)

    node.listing.readable = False
    await node.restart()
    node.read_all()
    assert len(claims(node)) == 2
    node.listing.readable = True
    await node.allocator.release_ended()
    await node.arrive()

    assert claims(node) == [0, 1, 2]


async def test_nothing_moves_before_the_node_has_said_how_many(node: MovingNode) -> None:
    await node.restart(1)
    await node.arrive()
    node.claims_gpus = None
    await node.restart()
    await node.arrive()

    assert (devices(node), claims(node)) == ([1, 2], [0])


@pytest.mark.parametrize("there", [True, False], ids=["to claims", "to device plugins"])
async def test_an_agent_that_dies_at_any_step_of_a_move_offers_nothing_twice(
    tmp_path: Path, *, there: bool
) -> None:
    for at in range(STEPS):
        node = MovingNode(tmp_path / str(at))
        await node.restart(0 if there else ALL_GPUS)
        await node.arrive()
        await node.restart(ALL_GPUS if there else 0)
        node.world.live_again(at)
        try:
            for _ in range(7):
                node.judge()
                await node.move(QUIET)
                node.judge()
                node.read_all()
        except AgentDied:
            node.judge()
            await node.restart()
        node.judge()
        await node.arrive()

        assert len(claims(node) if there else devices(node)) == 3
        node.judge()


class History:
    """Pods, claims, moves and deaths as they happen."""

    def __init__(self, node: MovingNode, random: Random) -> None:
        self.node, self.random = node, random
        self.running: list[PodView] = []
        self.claims: list[ClaimRef] = []
        self.made = self.refused = self.prepared = self.died = self.moves = 0

    async def step(self) -> None:
        acts = [self.admit] * 4 + [self.end] * 3 + [self.claim] * 4 + [self.prepare] * 4
        acts += [self.end_claim] * 3 + [self.time] * 8 + [self.behind] * 3 + [self.restart] * 2
        before = self.node.driver.node.offers
        try:
            await self.random.choice(acts)()
        except AgentDied:
            await self.revive()
        if before.keys() == self.node.driver.node.offers.keys():
            now = self.node.driver.node.offers
            self.moves += sum(before[g].interface != now[g].interface for g in now)
        self.node.judge()

    async def revive(self) -> None:
        self.died += 1
        for uid in {one.uid for one in self.node.listing.listed.values() if one.phase == "Pending"}:
            self.node.fail(uid)  # the kubelet was refused by a plugin that is gone
        while True:
            try:
                dies = self.random.randrange(40) if self.random.random() < 0.5 else None
                await self.node.restart(dies_at=dies)
            except AgentDied:
                continue
            self.running = [one for one in self.running if one.uid in self.node.pods]
            return

    async def admit(self) -> None:
        self.made += 1
        cores = self.random.choice([20, 30, 50, 100])
        one = pod(
            f"p{self.made}", container(cores, 0 if cores == 100 else self.random.randint(1, 8))
        )
        self.running.append(one)
        if not await self.node.device_pod(one):
            self.running.remove(one)
            self.refused += 1

    async def end(self) -> None:
        if self.running:
            one = self.running.pop(self.random.randrange(len(self.running)))
            if one.uid in self.node.pods:
                self.node.end_device_pod(one)

    async def claim(self) -> None:
        """By the scheduler's own books, which may be behind."""
        self.made += 1
        cores, blocks = self.random.choice([20, 50, 100]), self.random.randint(1, 8)
        taken = dict.fromkeys(self.node.scheduler, 0)
        for ref in self.claims:
            item = self.node.api.items["default", ref.name]
            for one in item["status"]["allocation"]["devices"]["results"]:
                used = int(one["consumedCapacity"]["cores"])
                taken[one["device"]] = taken.get(one["device"], 0) + used
        free = [name for name in sorted(self.node.scheduler) if taken[name] + cores <= 100]
        if free:
            ref = self.node.claim(f"c{self.made}", self.random.choice(free), cores, blocks)
            self.claims.append(ref)

    async def prepare(self) -> None:
        waiting = [one for one in self.claims if one.name not in self.node.prepared]
        if waiting and not await self.node.prepare(self.random.choice(waiting)):
            self.prepared += 1

    async def end_claim(self) -> None:
        if self.claims:
            ref = self.random.choice(self.claims)
            await self.node.end_claim(ref)
            self.claims.remove(ref)

    async def time(self) -> None:
        """Within a quiet period all have read what there is."""
        if self.random.random() < 0.5:
            self.node.read_all()
            await self.node.move(QUIET)
        else:
            await self.node.move()

    async def behind(self) -> None:
        self.random.choice([self.node.hear, self.node.publish, self.node.read_all])()

    async def restart(self) -> None:
        dies = self.random.randrange(80)
        await self.node.restart(self.random.choice([0, 1, 2, ALL_GPUS]), dies_at=dies)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_no_gpu_is_offered_or_given_twice(tmp_path: Path, seed: int) -> None:
    node = MovingNode(tmp_path, seed=seed)
    await node.restart()
    history = History(node, Random(seed))

    for _ in range(400):
        await history.step()

    assert min(history.prepared, history.died, history.moves) >= 3


def test_a_file_that_says_nothing_is_no_file(tmp_path: Path) -> None:
    file = OfferFile(tmp_path)
    assert file.read() == frozenset()
    file.path.write_text('{"version": 1}')
    assert file.read() == frozenset()


async def test_gpus_are_taken_back_although_the_kubelet_cannot_be_answered(
    node: MovingNode,
) -> None:
    """As where the runtime ignores CDI: only what offers something waits."""
    gpus, answerable = [gpu.uuid for gpu in node.topology.gpus], asyncio.Event()
    taken, leaving = GpuOffer(DEVICE_PLUGINS), GpuOffer(CLAIMS, leaving=True)
    kept = dict.fromkeys(gpus[1:-1], leaving) | {gpus[-1]: GpuOffer(CLAIMS)}
    node.driver.node.offer({gpus[0]: taken, **kept})
    waiting = asyncio.create_task(until_answerable(node.driver.node, answerable))
    await asyncio.sleep(0)
    assert not waiting.done()
    answerable.set()
    await waiting

    node.driver.node.offer({gpus[0]: taken, **dict.fromkeys(gpus[1:], leaving)})
    await until_answerable(node.driver.node, asyncio.Event())
