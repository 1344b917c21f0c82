"""An agent killed at each step of what it does for the kubelet: every admission comes to an end.

It succeeds, or it is refused and the kubelet knows; and nothing is lost or left over.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest

from gpumanager.grants.journal_file import JournalFile
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet.kubelet import CreateContainerError, RunOptions, SimulatedKubelet
from gpumanager.sim.kubelet.versions import KUBELET_1_20, KUBELET_1_36, KubeletVersion
from gpumanager.sim.manifest.pods import Pod
from tests.deviceplugin.agent_on_kubelet import BOUND, JOURNAL, share
from tests.waiting import LOOK, has_ended, until

PROGRAM: Final = "tests.deviceplugin.mortal_agent"
NEVER: Final = -1
STEPS: Final = 64
"""More than there are."""
LEAST: Final = 20
AT_ONCE: Final = 3
"""Nodes; each waits more than it works."""


class MortalAgents:
    """The program that begins them."""

    def __init__(self) -> None:
        words = (sys.executable, "-m", PROGRAM)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)

    def begin(self, base: Path, endpoint: str, step: int) -> int:
        """Returns the PID of one."""
        assert self._process.stdin
        assert self._process.stdout
        print(base, endpoint, step, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def agents() -> Iterator[MortalAgents]:
    found = MortalAgents()
    yield found
    found.close()


class MortalNode:
    """A kubelet, an agent that dies at `step`, and the one that takes over then."""

    def __init__(self, base: Path, version: KubeletVersion, agents: MortalAgents) -> None:
        self.base = base
        self._agents = agents
        self.kubelet = SimulatedKubelet(base / "kubelet", Random(7), base / "pr.sock", version)
        self.died = False
        self.why = ""
        self._pids: list[int] = []
        self._heir: asyncio.Task[None] | None = None

    async def start(self, step: int) -> None:
        """The second begins when the first is dead."""
        await self.kubelet.start()
        self._heir = asyncio.create_task(self._inherit(self._begin(step)))

    def _begin(self, step: int) -> int:
        self._pids.append(self._agents.begin(self.base, self.kubelet.http.endpoint, step))
        return self._pids[-1]

    async def _inherit(self, first: int) -> None:
        while not has_ended(first):  # noqa: ASYNC110 - nobody tells of another's child
            await asyncio.sleep(LOOK)
        self.died = True
        self.kubelet.forget_devices()
        self._begin(NEVER)

    async def stop(self) -> None:
        if self._heir is not None:
            self._heir.cancel()
        for pid in self._pids:
            if not has_ended(pid):
                os.kill(pid, signal.SIGKILL)
            await until(partial(has_ended, pid))
        await self.kubelet.stop()

    async def ready(self) -> None:
        await self.kubelet.wait_for_devices((VCORE, VMEMORY), BOUND)

    async def runs(self, name: str, cores: int, blocks: int) -> None:
        """The pod, or the one that is made in its place where it was refused for the death."""
        if not await self.ends_well(share(name, cores, blocks)):
            return
        assert self._heir is not None
        async with asyncio.timeout(BOUND):
            await self._heir
        await self.ready()
        assert await self.ends_well(share(f"{name}-again", cores, blocks)) == ""

    async def ends_well(self, pod: Pod) -> str:
        """Why it was refused; empty where it has started. Raises TimeoutError."""
        async with asyncio.timeout(BOUND):
            rejection = await self.kubelet.admit(pod)
        if rejection is not None:
            assert rejection.reason == "UnexpectedAdmissionError"
            return rejection.message
        try:
            async with asyncio.timeout(BOUND):
                options = await self.starts(pod)
        except TimeoutError:
            pytest.fail(f"{pod.name} does not start: {self.why}")
        assert options.environment["VCUDA_ALLOCATION"] in self.promised(pod)
        self.kubelet.running(pod.uid)
        return ""

    async def starts(self, pod: Pod) -> RunOptions:
        """The kubelet tries for as long as it takes."""
        while True:
            try:
                return await self.kubelet.prepare(pod, pod.containers[0])
            except CreateContainerError as error:
                self.why = str(error)

    def promised(self, pod: Pod) -> set[str]:
        """The allocations that the journal has for it, as far as it is settled."""
        live = JournalFile(self.base / JOURNAL).load().live()
        return {one.id for one in live if one.pod and one.pod.uid == pod.uid}


@asynccontextmanager
async def node_that_dies_at(
    step: int, version: KubeletVersion, agents: MortalAgents
) -> AsyncIterator[MortalNode]:
    base = Path(tempfile.mkdtemp(prefix="gm"))
    node = MortalNode(base, version, agents)
    try:
        await node.start(step)
        yield node
    finally:
        await node.stop()
        shutil.rmtree(base)


async def outlives(step: int, version: KubeletVersion, agents: MortalAgents) -> bool:
    """Whether the agent still lived when everything was done."""
    async with node_that_dies_at(step, version, agents) as node:
        await node.ready()
        await node.runs("first", 60, 40)
        await node.ready()
        await node.runs("rest", 40, 24)
        await node.ready()
        assert await node.kubelet.admit(share("too-much", 1, 1)) is not None
        return not node.died


@pytest.mark.parametrize(
    ("version", "first"),
    [(KUBELET_1_36, 0), (KUBELET_1_20, 1)],
    ids=lambda given: getattr(given, "number", "from"),
)
async def test_wherever_the_agent_is_killed_every_admission_comes_to_an_end(
    version: KubeletVersion, first: int, agents: MortalAgents
) -> None:
    """Every other step on each kubelet."""
    for step in range(first, STEPS, 2 * AT_ONCE):
        steps = range(step, step + 2 * AT_ONCE, 2)
        if any(await asyncio.gather(*(outlives(one, version, agents) for one in steps))):
            assert step > LEAST, "there are more steps than that"
            return
    pytest.fail("the agent dies for ever")
