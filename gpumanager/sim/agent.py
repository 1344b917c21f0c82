"""The real node agent, as a process of its own beside the simulated node."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import gpumanager.volume
from gpumanager.errors import GpuManagerError
from gpumanager.sim import parent_death
from gpumanager.sim.container.process import OUR_PYTHON, own_environment
from gpumanager.sim.host import NodeDisk

LAST_LINES: Final = 12
STOP_SECONDS: Final = 30.0
CHECK_SECONDS: Final = 5
"""How often the agent looks for pods that are gone; a simulated node lives shorter than a real."""

VOLUME_CONFIG: Final = Path(gpumanager.volume.__file__ or "").parent / "volume.conf"


class AgentDied(GpuManagerError):
    """The agent ended, or never got as far as registering; with the end of its log."""


class AgentProcess:
    """Starts, watches and ends `gpumanager agent` on a simulated node.

    flags: of the agent, beside those that a simulated node needs or instead of them.
    """

    def __init__(self, disk: NodeDisk, flags: Mapping[str, object] = MappingProxyType({})) -> None:
        self._disk = disk
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None
        self._ours = asyncio.Event()
        """Set while it runs, or died without being asked to."""

    def command(self, kubelet_endpoint: str) -> list[str]:
        disk = self._disk
        flags = {
            "device-plugin-path": disk.kubelet,
            "virtual-manager-path": disk.virtual,
            "turns-path": disk.turns,
            "checkpoint-path": disk.checkpoint,
            "volume-config": VOLUME_CONFIG,
            "volume-base": disk.volumes,
            "driver-root": disk.root,
            "device-directory": disk.base / "dev",
            "kubelet-endpoint": kubelet_endpoint,
            "pod-resources-socket": disk.pod_resources,
            "pods-api-socket": disk.pods_api,
            "plugins-path": disk.plugins,
            "plugins-registry-path": disk.plugins_registry,
            "cdi-path": disk.cdi[1],
            "container-runtime-endpoint": disk.runtime,
            "allocation-check-period": CHECK_SECONDS,
            "query-port": 0,
            "load-modules": "never",
            **self._flags,
        }
        words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        agent = (*OUR_PYTHON, "-m", "gpumanager", "agent", *words, "--share-mode")
        return [sys.executable, "-I", "-S", parent_death.__file__, *agent]

    def environment(self) -> dict[str, str]:
        """Return variables by which the agent finds simulated NVML and GPUs instead of the host's.

        It does not find the cluster whose pod this simulation may run in.
        """
        found = {"GPUSIM_DEV": self._disk.base / "dev", "LD_LIBRARY_PATH": self._disk.libraries}
        own = {k: text for k, text in own_environment().items() if k != "KUBERNETES_SERVICE_HOST"}
        return {**own, **{name: str(value) for name, value in found.items()}}

    async def start(self, kubelet_endpoint: str) -> None:
        with self._disk.agent_log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command(kubelet_endpoint),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,  # Ctrl-C at a terminal is for the simulation alone
            )
        self._ours.set()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise AgentDied("the node agent was never started")
        return self._process.pid

    async def died(self) -> AgentDied:
        """Return when it ended by itself; not when it was killed or stopped here."""
        while True:
            await self._ours.wait()
            status = await self._process.wait() if self._process is not None else 0
            if self._ours.is_set():
                return AgentDied(f"the node agent ended with status {status}: {self.last_words()}")

    async def kill(self) -> None:
        """Kill it, as a crash."""
        self._ours.clear()
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End it by SIGTERM, or by SIGKILL if it does not end."""
        self._ours.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._end(signal.SIGTERM)
        await self._end(signal.SIGKILL)

    def last_words(self) -> str:
        """Return the end of its log, for a message."""
        with contextlib.suppress(OSError):
            lines = self._disk.agent_log.read_text(errors="replace").splitlines()
            return " | ".join(line.strip() for line in lines[-LAST_LINES:])
        return ""

    async def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            await self._process.wait()
