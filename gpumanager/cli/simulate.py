"""`gpumanager simulate`: a whole node in a box, with your pods on it.

Progress goes to standard error while it works; the result goes to standard output, as a table for
people or as JSON for programs. `--serve` keeps the node for `top`, `tree`, `explain` and a browser.
"""

import asyncio
import contextlib
import json
import re
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from gpumanager.cli.flags import DURATION
from gpumanager.cli.output.simulate_progress import DEFAULT_PORT, Progress
from gpumanager.cli.output.simulate_report import Report, as_json, machines_table, print_report
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.scheduler.webhook.nodes import NodeKind
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.review import Decision
from gpumanager.scheduler.webhook.validate import validate
from gpumanager.scheduler.webhook.validate_claim import DEVICES, validate_claim
from gpumanager.sim import events
from gpumanager.sim.host_watch import HostWatch
from gpumanager.sim.kubelet.pods import SimulatedPodStatus, pod_json
from gpumanager.sim.machine import Machine
from gpumanager.sim.machines import load_machine, machine_names
from gpumanager.sim.manifest.pods import Manifest, read_manifest
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.restarting import keep_running
from gpumanager.sim.results import ContainerResult

Verdicts = dict[str, Decision]
WEBHOOK: Final = AdmissionPolicy()
"""How a webhook judges by default."""

DEFAULT_MACHINE: Final = "dgx-a100"
_CUDA_VERSION: Final = re.compile(r"([1-9][0-9])\.([0-9])")
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_SECONDS: Final = 30.0
"""For pods that were told to end, and the figures of them."""
MOST_NODES: Final = 20
HISTORY_SECONDS: Final = 300
"""Of what the served page shows when it is opened."""
SERVE_PORT: Final = DEFAULT_PORT
"""The agent's own, where `top`, `tree` and `explain` look for it."""


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """seed: of the kubelet's choices. timeout: seconds until it is given up. stop_after: seconds
    after which containers that were started are told to end.

    serve: the port of the agent's pages, which then stay until somebody ends the simulation.
    nodes: how many there are.
    """

    seed: int
    timeout: float
    stop_after: float | None
    serve: int | None
    nodes: int


def list_machines(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001
    del param
    if wanted:
        machines_table()
        ctx.exit()


def complete_machine(
    _ctx: click.Context, _param: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return names of machines, and files."""
    names = [CompletionItem(name) for name in machine_names() if name.startswith(begun)]
    return [*names, CompletionItem(begun, type="file")]


class ServeCommand(click.Command):
    """`--serve` may stand before a file: what is no number is not its port."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        found = list(args)
        for place, word in enumerate(args):
            following = args[place + 1] if place + 1 < len(args) else ""
            if word == "--serve" and not following.isdigit():
                found[place] = f"--serve={SERVE_PORT}"
        return super().parse_args(ctx, found)


@click.command("simulate", cls=ServeCommand)
@click.argument(
    "pods", nargs=-1, metavar="[FILE.yaml|-]...", type=click.Path(path_type=Path, allow_dash=True)
)
@click.option(
    "--machine",
    metavar="NAME|FILE",
    default=DEFAULT_MACHINE,
    show_default=True,
    shell_complete=complete_machine,
    help="The node's hardware; see --list-machines.",
)
@click.option(
    "--cuda-version",
    metavar="N.N",
    help="CUDA version of the node's driver, instead of the machine's; from 13.0 on it is the "
    "simulated release that knows CUDA 13.4.",
)
@click.option("--json", "as_text", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="Seed for choices that the kubelet makes at random, such as the order of resources.",
)
@click.option(
    "--timeout",
    type=DURATION,
    default="5m",
    show_default=True,
    help="Stop the pods and fail after this long.",
)
@click.option(
    "--for",
    "stop_after",
    type=DURATION,
    help="Stop pods this long after the last container was started, for servers, which never end "
    "by themselves; for example 30s.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with status 1 if a pod was refused or failed, or if the webhook would refuse it.",
)
@click.option(
    "--serve",
    type=click.IntRange(1, 65535),
    is_flag=False,
    flag_value=SERVE_PORT,
    metavar="[PORT]",
    help="Keep the node until Ctrl-C, with its page at http://localhost:PORT (5678 if none is "
    "given), for top, tree and explain. Pods that end are started again.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, MOST_NODES),
    default=1,
    metavar="N",
    show_default=True,
    help="With --serve: a cluster of N such nodes, with the extender that chooses among them and "
    "its page at http://localhost:3456. The nodes' pages are at PORT, PORT+1 and so on.",
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
    stop_after: float | None,
    strict: bool,
    serve: int | None,
    nodes: int,
) -> None:
    """Run pods on a simulated node: the real node agent, with simulated GPUs and kubelet.

    The pods are admitted one after another; the command of each container runs as a process of this
    host, in a mount namespace of its own, behind the real shim. Deployments, StatefulSets,
    DaemonSets, Jobs and CronJobs run the pods of their template. Pods can use ConfigMaps and
    Secrets from the files. If some pods ask by claims and others by extended resources, each kind
    has half of the GPUs.

    \b
    Examples:
      gpumanager simulate examples/half-a-gpu.yaml
      kubectl get deployment web -o yaml | gpumanager simulate --for 30s -
      gpumanager simulate --serve --nodes 3 examples/thirty-and-sixty.yaml
    """
    if not pods:
        raise click.UsageError(
            "name at least one pod to run, such as: "
            "gpumanager simulate --machine t4x4 examples/half-a-gpu.yaml"
        )
    described = load_machine(machine)
    if cuda_version is not None:
        match = _CUDA_VERSION.fullmatch(cuda_version)
        if match is None:
            cause = f"expected for example 13.4, found {cuda_version!r}"
            raise InputError("--cuda-version", cause)
        number = 1000 * int(match[1]) + 10 * int(match[2])  # 13040 for 13.4, as drivers have it
        described = replace(described, cuda_version=number)
    wanted = read_manifest(pods)
    if nodes > 1 and (serve is None or wanted.objects):
        raise click.UsageError("--nodes needs --serve, and pods without claims")
    check_ports(serve, nodes)
    for note in wanted.notes:
        click.echo(f"     note  {note}", err=True)
    try:
        options = SimulationOptions(seed, timeout, stop_after, serve, nodes)
        results, late, cut = asyncio.run(simulate(described, wanted, options))
    except asyncio.CancelledError:
        raise click.Abort from None
    report = Report(
        described,
        results,
        late,
        *judge(wanted, described),
    )
    if as_text:
        click.echo(json.dumps(as_json(report), indent=2))
    else:
        print_report(report)
    if cut is not None:
        raise cut
    if strict and report.failed:
        raise GpuManagerError("--strict: a pod was refused or failed")


def check_ports(first: int | None, count: int) -> None:
    """Raise GpuManagerError if a port is taken: an agent would go on without its page."""
    for port in range(first, first + count) if first else ():
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                why = getattr(error, "strerror", None) or "there is no such port"
                raise GpuManagerError(
                    f"cannot serve on port {port}: {why}; name another one with --serve PORT"
                ) from error


def judge(manifest: Manifest, machine: Machine) -> tuple[Verdicts, Verdicts]:
    """Return what the webhook of a cluster with nodes like this finds; nothing for most. Of pods by
    their full name, of claims, templates and classes by kind and name."""
    pods = {
        pod.full_name: validate(pod_json(SimulatedPodStatus(pod)), WEBHOOK) for pod in manifest.pods
    }
    claims, nodes = {}, [NodeKind.of(machine.topology)]
    for one in manifest.objects:
        if (kind := one.item.get("kind", "Pod")) in DEVICES:  # pods of a template have no kind
            metadata = one.item["metadata"]
            names = filter(None, (metadata.get("namespace"), metadata["name"]))
            claims[f"{kind} {'/'.join(names)}"] = validate_claim(kind, one.item, WEBHOOK, nodes)
    found = [{n: v for n, v in all_.items() if v.errors or v.warnings} for all_ in (pods, claims)]
    return found[0], found[1]


async def simulate(
    machine: Machine, manifest: Manifest, options: SimulationOptions
) -> tuple[tuple[ContainerResult, ...], float, BaseException | None]:
    """Run the pods on a fresh node; return their results, which part of the time this machine was
    late, and why the pods were ended early, if so. Raises GpuManagerError."""
    loop = asyncio.get_running_loop()
    with Progress(machine) as progress:
        ending = Ending(progress, options)
        try:
            async with (
                asyncio.timeout(None if options.serve else options.timeout) as bound,
                AsyncExitStack() as stack,
            ):
                stack.enter_context(ending.by_signals())
                run = await _start(stack, machine, manifest, ending.observe, options)
                ending.pods_run = True
                if (when := bound.when()) is not None:
                    bound.reschedule(when + STOP_SECONDS)
                    loop.call_at(when, ending.time_is_up, options.timeout)
                if options.serve:
                    progress.serves(options.serve, options.nodes, manifest.pods)
                with HostWatch() as host:
                    results = await run(ending.stop)
                return results, host.late, ending.cut
        except TimeoutError:
            raise not_finished(options.timeout, progress) from None


def not_finished(seconds: float, progress: Progress) -> GpuManagerError:
    return GpuManagerError(
        f"not finished after {seconds:g} s: {progress.unfinished}; "
        "give it longer with --timeout, or end it in time with --for"
    )


async def _start(
    stack: AsyncExitStack,
    machine: Machine,
    manifest: Manifest,
    on_event: events.OnEvent,
    options: SimulationOptions,
) -> Callable[[asyncio.Event], Awaitable[tuple[ContainerResult, ...]]]:
    """Start what the pods run on; return what runs them there until they end or the event is
    set."""
    seed = options.seed
    if options.serve and options.nodes > 1:
        from gpumanager.cli.simulated_cluster import SimulatedCluster

        cluster = SimulatedCluster(
            machine, options.nodes, port=options.serve, seed=seed, on_event=on_event
        )
        await stack.enter_async_context(cluster)
        return partial(cluster.run, manifest.pods)
    flags = {"query-port": options.serve or 0}
    if options.serve:
        flags["page-history"] = HISTORY_SECONDS
    if not manifest.objects:
        node = SimulatedNode(machine, seed=seed, on_event=on_event, agent_flags=flags)
        await stack.enter_async_context(node)
        if not options.serve:
            return partial(node.run, manifest.pods)
        return lambda stop: keep_running(manifest.pods, lambda pod: node.run([pod], stop), stop)
    from gpumanager.sim.claims.node import ClaimsNode

    gpus = claims_gpus(machine, manifest)
    claims = ClaimsNode(machine, seed=seed, on_event=on_event, claims_gpus=gpus, agent_flags=flags)
    await stack.enter_async_context(claims)

    async def run_claims(stop: asyncio.Event) -> tuple[ContainerResult, ...]:
        results = await claims.run(manifest, stop)
        if options.serve:
            await stop.wait()
        return results

    return run_claims


def claims_gpus(machine: Machine, manifest: Manifest) -> int | None:
    """Return half of the GPUs where some pods ask by claims and others by the two lines; None, for
    all, otherwise. Raises InputError: a GPU is offered one way at a time."""
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


class Ending:
    """How a simulation ends early. stop: set when pods are to end. cut: why, where it is an error.

    The first Ctrl-C, SIGTERM or closed terminal stops the pods, and their figures are shown. The
    second ends the simulation at once, without figures; nothing of it is left behind either way.
    Further ones change nothing: an impatient user must not stop the cleaning up.
    """

    def __init__(self, progress: Progress, options: SimulationOptions) -> None:
        self.stop = asyncio.Event()
        self.cut: BaseException | None = None
        self.pods_run = False
        self._progress = progress
        self._options = options
        self._timer: asyncio.TimerHandle | None = None

    def observe(self, event: events.Event) -> None:
        """Start the time of --for with the last container that starts; with --serve, where they
        start again and again, with the first."""
        self._progress.show(event)
        seconds = self._options.stop_after
        if seconds is None or not isinstance(event, events.ContainerStarted):
            return
        if self._timer is not None:
            if self._options.serve:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.stop.set)

    def time_is_up(self, seconds: float) -> None:
        if not self.stop.is_set():
            self.cut = not_finished(seconds, self._progress)
            self.stop.set()

    @contextlib.contextmanager
    def by_signals(self) -> Iterator[None]:
        """End by signals, but for those that the caller had us ignore, as `nohup` does."""
        loop, running = asyncio.get_running_loop(), asyncio.current_task()
        heard = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]

        def end() -> None:
            if self.pods_run and not self.stop.is_set():
                self.cut = click.Abort()
                self.stop.set()
                return
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
