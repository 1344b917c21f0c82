"""The pictures of `gpumanager top`: a simulated node runs the examples, and is looked at.

    python docs/images/make_terminal.py [--machine v100x4-nvlink] [--seconds 4]

Writes top.svg, 100 columns wide, and top-80.svg beside itself; the second is what an SSH session of
80 columns shows, with the details of one container. Needs what `gpumanager simulate` needs.
"""

import argparse
import asyncio
import contextlib
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpumanager.cli.node_agents import list_nodes
from gpumanager.cli.output.top_app import TopApp
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod, read_manifest
from gpumanager.sim.node import SimulatedNode
from gpumanager.view.figures import UNICODE
from gpumanager.view.node import Seen

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Would be fetched from elsewhere; a picture is whole by itself."""
NAMES = ("thirty-and-sixty", "bursts-beside-training", "greedy-memory", "half-a-gpu")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def longer(pod: Pod) -> Pod:
    """The examples end after some seconds; here they are looked at first."""

    def word(text: str, before: str) -> str:
        return "120" if before == "--seconds" else re.sub(r"for=\d+s", "for=120s", text)

    def container(one: ContainerManifest) -> ContainerManifest:
        words = zip(one.command, ("", *one.command), strict=False)
        return replace(one, command=tuple(word(*pair) for pair in words))

    return replace(pod, containers=tuple(map(container, pod.containers)))


async def picture(machine: str, seconds: float) -> tuple[Sequence[Seen], Sequence[Seen]]:
    """The node while the examples run on it, twice: a rate is between two looks. seconds: between
    them, the first of which is when the last pod was admitted."""
    port = free_port()
    flags = {"query-port": port, "hostname-override": "gpu-node-1"}
    found = read_manifest([EXAMPLES / f"{name}.yaml" for name in NAMES])
    pods = [longer(pod) for pod in found.pods]
    async with SimulatedNode(load_machine(machine), agent_flags=flags) as node:
        running = asyncio.create_task(node.run(pods))
        url = f"http://127.0.0.1:{port}"
        wanted = sum(len(pod.containers) for pod in pods)
        nodes: Sequence[Seen] = ()
        async with asyncio.timeout(100):
            while not nodes or not nodes[0].node or len(nodes[0].node.shares) < wanted:
                await asyncio.sleep(0.2)
                nodes = await asyncio.to_thread(list_nodes, [url], nodes)
        await asyncio.sleep(seconds)
        later = await asyncio.to_thread(list_nodes, [url], nodes)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    return nodes, later


async def drawn(
    looks: tuple[Sequence[Seen], Sequence[Seen]], size: tuple[int, int], *keys: str
) -> str:
    """As SVG, after these keys."""
    app = TopApp(looks[0], UNICODE)
    async with app.run_test(size=size) as pilot:
        app.show(looks[1])
        await pilot.press(*keys)
        await pilot.pause()
        shown = app.export_screenshot(title="gpumanager top")
        return FONTS.sub("", shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", default="v100x4-nvlink")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    looks = asyncio.run(picture(options.machine, options.seconds))
    pictures = {
        "top.svg": drawn(looks, (100, 20), "down"),
        "top-80.svg": drawn(looks, (80, 24), "down", "down", "enter"),
    }
    for name, drawing in pictures.items():
        (HERE / name).write_text(asyncio.run(drawing))


if __name__ == "__main__":
    main()
