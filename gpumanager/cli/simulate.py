"""`gpumanager simulate`: a whole node in a box, with your pods on it.

Progress goes to standard error while it works; the result goes to standard output, as a table for
people or as JSON for programs.
"""

import asyncio
import contextlib
import json
import math
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from gpumanager.cli.output.simulate_progress import Progress
from gpumanager.cli.output.simulate_report import as_json, machines_table, print_report
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.sim.machine import Machine
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import Manifest, read_manifest
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.results import ContainerResult

DEFAULT_MACHINE: Final = "dgx-a100"
_CUDA_VERSION: Final = re.compile(r"([1-9][0-9])\.([0-9])")
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class NotFinished(GpuManagerError):
    """The pods ran longer than they were given."""


def list_machines(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001
    del param
    if wanted:
        machines_table()
        ctx.exit()


@click.command("simulate")
@click.argument("pods", nargs=-1, metavar="[POD.yaml]...", type=click.Path(path_type=Path))
@click.option(
    "--machine",
    metavar="NAME|FILE",
    default=DEFAULT_MACHINE,
    show_default=True,
    help="The node's hardware; see --list-machines.",
)
@click.option(
    "--cuda-version",
    metavar="N.N",
    help="What the node's driver speaks instead of what the machine says; from 13.0 on it is a "
    "release that knows CUDA 13.4.",
)
@click.option("--json", "as_text", is_flag=True, help="The result as JSON.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the choices a kubelet makes freely, such as the order of resources.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=86400),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up after this long.",
)
@click.option(
    "--list-machines",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=list_machines,
    help="Show the machines that come with gpumanager, and exit.",
)
def command(
    pods: Sequence[Path],
    *,
    machine: str,
    cuda_version: str | None,
    as_text: bool,
    seed: int,
    timeout: float,
) -> None:
    """A whole node in a box: real node agent, simulated GPUs and kubelet, your pods.

    The pods are admitted one after another; the command of each container runs as a process of this
    host, in a mount namespace of its own, behind the real shim. Where some pods ask by claims and
    others by the two lines, each kind has half of the GPUs.

    \b
    Example:
      gpumanager simulate examples/half-a-gpu.yaml
    """
    if math.isnan(timeout):
        raise click.BadParameter("not a number of seconds", param_hint="--timeout")
    if not pods:
        raise click.UsageError(
            "name at least one pod to run, such as: "
            "gpumanager simulate --machine t4x4 examples/half-a-gpu.yaml"
        )
    described = load_machine(machine)
    if cuda_version is not None:
        described = replace(described, cuda_version=_cuda_version(cuda_version))
    wanted = read_manifest(pods)
    try:
        results = asyncio.run(simulate(described, wanted, seed, timeout))
    except asyncio.CancelledError:
        raise click.Abort from None
    if as_text:
        click.echo(json.dumps(as_json(described, results), indent=2))
    else:
        print_report(described, results)


def _cuda_version(text: str) -> int:
    """13040 for 13.4, as a driver says it; raises InputError."""
    match = _CUDA_VERSION.fullmatch(text)
    if match is None:
        raise InputError("--cuda-version", f"expected such as 13.4, found {text!r}")
    return 1000 * int(match[1]) + 10 * int(match[2])


async def simulate(
    machine: Machine, manifest: Manifest, seed: int, seconds: float
) -> tuple[ContainerResult, ...]:
    """Run the pods on a fresh node; raises NotFinished and what the node raises."""
    with Progress(machine) as progress, _ending_once():
        try:
            async with asyncio.timeout(seconds):
                if manifest.objects:
                    from gpumanager.sim.claims.node import ClaimsNode

                    async with ClaimsNode(
                        machine,
                        seed=seed,
                        on_event=progress.show,
                        claims_gpus=claims_gpus(machine, manifest),
                    ) as claims:
                        return await claims.run(manifest)
                async with SimulatedNode(machine, seed=seed, on_event=progress.show) as node:
                    return await node.run(manifest.pods)
        except TimeoutError:
            raise NotFinished(
                f"not finished after {seconds:g} s: {progress.unfinished}; "
                "give it longer with --timeout"
            ) from None


def claims_gpus(machine: Machine, manifest: Manifest) -> int | None:
    """Half of the GPUs where some pods ask by claims and others by the two lines; otherwise None,
    for all. Raises InputError: a GPU is offered one way at a time."""
    claiming = {one.item["metadata"]["uid"] for one in manifest.objects if one.resource == "pods"}
    asking = (pod for pod in manifest.pods if any(one.asks for one in pod.containers))
    by_lines = [pod for pod in asking if pod.uid not in claiming]
    if not by_lines:
        return None
    gpus = len(machine.topology.gpus)
    if gpus == 1:
        raise InputError(
            f"pod {by_lines[0].full_name}",
            "asks for a GPU without a claim, and others with one; a GPU is offered one way at a "
            "time: name a --machine with more than one GPU, or run them one after the other",
        )
    return gpus // 2


@contextlib.contextmanager
def _ending_once() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal end a simulation; nothing of it is left behind.

    A second signal changes nothing: an impatient user must not stop the cleaning up. What
    the caller had us ignore, as `nohup` does, stays ignored.
    """
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    heard = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]

    def end() -> None:
        for number in heard:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        if running is not None:
            running.cancel()

    for number in heard:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
