"""What happens on the simulated node, line by line on standard error while it happens."""

import contextlib
from collections.abc import Sequence
from typing import Final, Self

from rich.status import Status
from rich.text import Text

from gpumanager.cli.output.console import OutputConsole
from gpumanager.gpu.values import GpuUUID
from gpumanager.sim import events
from gpumanager.sim.machine import Machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod

DEFAULT_PORT: Final = 5678
"""Where `top`, `tree` and `explain` look without being told."""
CLUSTER_PAGE: Final = "http://localhost:3456"
READER_GONE: Final = contextlib.suppress(OSError)
"""Around what is printed: where the reader is gone, the work goes on."""


class Progress:
    """Shows each event as one line, and above them what is being waited for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._console = OutputConsole(progress=True)
        self._status = Status("starting the node agent", console=self._console, spinner="dots")
        self._running: set[str] = set()

    def __enter__(self) -> Self:
        with READER_GONE:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        with READER_GONE:
            self._status.stop()

    @property
    def unfinished(self) -> str:
        if not self._running:
            return "no container was running yet"
        return f"still running: {', '.join(sorted(self._running))}"

    def serves(self, port: int, nodes: int, pods: Sequence[Pod]) -> None:
        """Show where the pages are, and how to call what reads them."""
        agents = [f"http://localhost:{port + index}" for index in range(nodes)]
        if nodes > 1:
            self._print("open", "bold green", f"{CLUSTER_PAGE}  the cluster")
        for url in agents:
            self._print("open", "bold green", url)
        default = len(agents) == 1 and port == DEFAULT_PORT
        flags = "" if default else "".join(f" --agent {url}" for url in agents)
        about = f"explain {pods[0].full_name}" if pods else "explain POD"
        words = (f"top{flags}", f"tree{flags}", about + ("" if nodes > 1 else flags))
        for one in words:
            self._print("try", "bold green", f"gpumanager {one}")
        self._print("end", "bold green", "Ctrl-C, which prints the table")

    def show(self, event: events.Event) -> None:
        match event:
            case events.NodeReady():
                self._print("ready", "bold", f"{gpus_of(self._machine)}, agent registered")
            case events.PodAdmitted(pod):
                self._print("admitted", "green", pod.full_name)
            case events.PodRefused(pod, rejection):
                self._print("refused", "red", f"{pod.full_name}: {rejection.cause}")
            case events.ContainerStarted(pod, container, gpus):
                name = name_of(pod, container)
                self._running.add(name)
                found = [self._machine.topology.by_uuid(GpuUUID(one)) for one in gpus.split(",")]
                indices = ", ".join(str(gpu.index) for gpu in found if gpu is not None)
                self._print("started", "cyan", f"{name} on GPU {indices}" if indices else name)
                self._refresh()
            case events.ContainerPrinted(pod, container, line):
                self._print("", "dim", f"{name_of(pod, container)} | {plain(line)}")
            case events.ContainerEnded(pod, container, exit_code):
                name = name_of(pod, container)
                self._running.discard(name)
                style = "cyan" if exit_code == 0 else "red"
                self._print("ended", style, f"{name}, exit {exit_code}")
                self._refresh()

    def _refresh(self) -> None:
        count = len(self._running)
        with READER_GONE:
            self._status.update(f"{count} container{'s' * (count != 1)} running")

    def _print(self, word: str, style: str, text: str) -> None:
        line = Text(f"{word:>9}  ", style=style)
        with READER_GONE:
            self._console.print(line.append(text, style="dim" if style == "dim" else "default"))


def name_of(pod: Pod, container: ContainerManifest) -> str:
    """Return a name as short as it stays clear: the namespace only where it is not the default."""
    namespace = "" if pod.namespace == "default" else f"{pod.namespace}/"
    return f"{namespace}{pod.name}/{container.name}"


def gpus_of(machine: Machine) -> str:
    """Return `t4x4: 4 x Tesla T4`."""
    models = [gpu.model for gpu in machine.topology.gpus]
    counted = [f"{models.count(model)} x {model}" for model in dict.fromkeys(models)]
    return f"{machine.name}: {', '.join(counted)}"


def plain(line: str) -> str:
    """Return output of a program without what would move the cursor or change colours."""
    return "".join(letter if letter.isprintable() else " " for letter in line)
