"""An agent killed at each step of what it does for the kubelet: every admission comes to an end.

It succeeds, or it is refused and the kubelet knows; and nothing is lost or left over.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
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

PROGRAM: Final = "tests.deviceplugin.mortal_agent"
NEVER: Final = -1
STEPS: Final = 64
"""More than there are."""
LEAST: Final = 20
AT_ONCE: Final = 3
"""Nodes; each waits more than it works."""


class MortalNode:
    """A kubelet, an agent that dies at `step`, and the one that takes over then."""

    def __init__(self, base: Path, version: KubeletVersion) -> None:
        self.base = base
        self.kubelet = SimulatedKubelet(base / "kubelet", Random(7), base / "pr.sock", version)
        self.died = False
        self.why = ""
        self._processes: list[asyncio.subprocess.Process] = []
        self._heir: asyncio.Task[None] | None = None

    async def start(self, step: int) -> None:
        """Both are loaded; the second begins when the first is dead."""
        await self.kubelet.start()
        first, second = [await self._load(at) for at in (step, NEVER)]
        await self._begin(first)
        self._heir = asyncio.create_task(self._inherit(first, second))

    async def _load(self, step: int) -> asyncio.subprocess.Process:
        words = (self.base, self.kubelet.http.endpoint, step)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", PROGRAM, *map(str, words), stdin=asyncio.subprocess.PIPE
        )
        self._processes.append(process)
        return process

    async def _begin(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        process.stdin.write(b"begin\n")
        await process.stdin.drain()

    async def _inherit(
        self, first: asyncio.subprocess.Process, second: asyncio.subprocess.Process
    ) -> None:
        await first.wait()
        self.died = True
        self.kubelet.forget_devices()
        await self._begin(second)

    async def stop(self) -> None:
        if self._heir is not None:
            self._heir.cancel()
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
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
async def node_that_dies_at(step: int, version: KubeletVersion) -> AsyncIterator[MortalNode]:
    base = Path(tempfile.mkdtemp(prefix="gm"))
    node = MortalNode(base, version)
    try:
        await node.start(step)
        yield node
    finally:
        await node.stop()
        shutil.rmtree(base)


async def outlives(step: int, version: KubeletVersion) -> bool:
    """Whether the agent still lived when everything was done."""
    async with node_that_dies_at(step, version) as node:
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
    version: KubeletVersion, first: int
) -> None:
    """Every other step on each kubelet."""
    for step in range(first, STEPS, 2 * AT_ONCE):
        steps = range(step, step + 2 * AT_ONCE, 2)
        if any(await asyncio.gather(*(outlives(one, version) for one in steps))):
            assert step > LEAST, "there are more steps than that"
            return
    pytest.fail("the agent dies for ever")
