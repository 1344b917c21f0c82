"""Run the containers of one admitted pod: in the order of a pod's life, as real processes."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gpumanager.ids import ContainerID, PodUID
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import CONTAINER_VCUDA
from gpumanager.runtime.status import Bind, Container, LiveContainer
from gpumanager.sim import events
from gpumanager.sim.cdi import CdiUnresolved
from gpumanager.sim.container.process import (
    ContainerNotStarted,
    ContainerProcess,
    start_container,
)
from gpumanager.sim.container.values import BindMount, ContainerSpec
from gpumanager.sim.container_runtime import SimulatedRuntime
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.sim.host import NodeDisk
from gpumanager.sim.kubelet.kubelet import (
    ClaimsUnknown,
    CreateContainerError,
    RunOptions,
    SimulatedKubelet,
)
from gpumanager.sim.manifest.expansion import expand, expand_environment
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.results import ContainerResult, measure, memory_limit, why
from vcuda_shim import PROGRAMS

GPUS: Final = "VCUDA_GPUS"
ALLOCATION: Final = "VCUDA_ALLOCATION"
SIDECAR_GRACE_SECONDS: Final = 2.0

_KEPT: Final = ("HOME", "LANG", "LC_ALL", "TERM", "TZ")
"""Variables of the host that a container's image would bring too."""


class PodRunner:
    """Runs the pods of one node. containers: of all of them, which `close` ends."""

    def __init__(
        self,
        disk: NodeDisk,
        gpus: SimulatedGpus,
        kubelet: SimulatedKubelet,
        runtime: SimulatedRuntime,
        on_event: events.OnEvent,
    ) -> None:
        self.containers: list[ContainerProcess] = []
        self._disk, self._gpus, self._kubelet, self._runtime = disk, gpus, kubelet, runtime
        self._on_event = on_event
        self._ending = contextlib.AsyncExitStack()

    async def close(self) -> None:
        """End all containers; one failing, still the rest."""
        await self._ending.aclose()

    async def run(
        self, pod: Pod, *, running: asyncio.Event | None = None, stop: asyncio.Event | None = None
    ) -> tuple[ContainerResult, ...]:
        """Return all containers of an admitted pod; when this returns its devices are free again.

        running: set before the first container starts. stop: once it is set they are to end.
        """
        results: dict[str, ContainerResult] = {}
        refused = "deleted before its claims were prepared"
        try:
            if await self._kubelet.prepare_claims(pod):
                self._kubelet.running(pod.uid)
                if running is not None:
                    running.set()
                await self._run_in_order(pod, results, stop)
            await self._kubelet.unprepare_claims(pod)
        except ClaimsUnknown as error:
            refused = str(error)
        finally:
            self._runtime.pod_removed(pod.uid)
            apps = [one.name for one in pod.containers if one.kind is ContainerKind.APP]
            succeeded = all(name in results and results[name].exit_code == 0 for name in apps)
            self._kubelet.ended(pod.uid, failed=not succeeded)
        return tuple(
            results.get(one.name) or ContainerResult(pod, one, refused=refused)
            for one in pod.containers
        )

    async def _run_in_order(
        self, pod: Pod, results: dict[str, ContainerResult], stop_pod: asyncio.Event | None
    ) -> None:
        """Run init containers one by one, sidecars beside what follows, then the apps at once."""
        sidecars: list[asyncio.Task[ContainerResult]] = []
        stop = asyncio.Event()
        failed: str | None = None
        apps: list[ContainerManifest] = []
        async with asyncio.TaskGroup() as group:
            for container in pod.containers:
                if failed is not None:
                    results[container.name] = ContainerResult(pod, container, refused=failed)
                elif container.kind is ContainerKind.APP:
                    apps.append(container)
                elif container.kind is ContainerKind.SIDECAR:
                    sidecars.append(group.create_task(self._run_one(pod, container, stop)))
                else:
                    result = results[container.name] = await self._run_one(pod, container, stop_pod)
                    if result.exit_code != 0:
                        how = result.refused or f"exit {result.exit_code}"
                        failed = f"init container {container.name} failed: {how}"
            running = [group.create_task(self._run_one(pod, app, stop_pod)) for app in apps]
            finished = [await task for task in running]
            stop.set()
            finished += [await task for task in sidecars]
        results.update({result.container.name: result for result in finished})

    async def _run_one(
        self, pod: Pod, container: ContainerManifest, stop: asyncio.Event | None = None
    ) -> ContainerResult:
        """Run one container from PreStart to its end, or end it once `stop` is set."""
        if stop is not None and stop.is_set():
            return ContainerResult(pod, container, refused="stopped before it was started")
        try:
            options = await self._kubelet.prepare(pod, container)
            spec = container_spec(pod, container, options, lay_out_volumes(pod, self._disk.base))
            spec = self._runtime.create(spec, options.cdi_devices)
            granted = options.environment
            if options.cdi_devices:  # whose variables replaced the pod's own
                granted = {**spec.environment, **granted}
            self._on_event(events.ContainerStarted(pod, container, granted.get(GPUS, "")))
            process = await start_container(
                spec, lambda line: self._on_event(events.ContainerPrinted(pod, container, line))
            )
        except (CreateContainerError, CdiUnresolved, ContainerNotStarted) as error:
            return ContainerResult(pod, container, refused=str(error))
        self.containers.append(process)
        self._ending.push_async_callback(process.close)
        named = Container(ContainerID(""), PodUID(pod.uid), pod.namespace, pod.name, container.name)
        live = self._runtime.started(
            LiveContainer(
                named,
                process.pid,
                mounts=tuple(Bind(row.host, row.container) for row in spec.mounts),
                devices=tuple(Bind(row.host, row.container) for row in spec.devices),
                envs=spec.environment,
                annotations=options.annotations,
            )
        )
        ending, stopped = asyncio.create_task(process.wait()), False
        try:
            if stop is not None:
                asking = asyncio.create_task(stop.wait())
                await asyncio.wait((ending, asking), return_when=asyncio.FIRST_COMPLETED)
                stopped = not ending.done()
                asking.cancel()
                process.terminate()
                await asyncio.wait((ending,), timeout=SIDECAR_GRACE_SECONDS)
                process.kill()
            code = await ending
        finally:
            process.kill()
            self._runtime.ended(live.container.container_id)
        self._on_event(events.ContainerEnded(pod, container, code))
        # Read while the allocation's books are still there: the pod has not ended yet.
        gpus = self._gpus.machine.topology.gpus
        accounts = {row.mount_namespace: row for row in self._gpus.tenants()}
        books = [Path(row.host) for row in spec.mounts if row.container == str(CONTAINER_VCUDA)]
        found = tuple(one for one in gpus if one.uuid in granted.get(GPUS, "").split(","))
        return ContainerResult(
            pod,
            container,
            gpus=found,
            why=why(self._disk.checkpoint, granted.get(ALLOCATION, "")),
            memory_limit=memory_limit(container, found),
            measured=measure(accounts.get(process.mount_namespace), next(iter(books), None)),
            exit_code=code,
            stopped=stopped,
        )


def lay_out_volumes(pod: Pod, directory: Path) -> Mapping[str, Path]:
    """Return where the pod's volumes lie, by name; made below `directory` for its first container.

    A hostPath is taken as it is; nothing is made on the host for it.
    """
    found = {}
    for volume in pod.volumes:
        place = Path(volume.host or directory / f"{pod.uid}-volumes" / volume.name)
        found[volume.name] = place
        if volume.host or place.exists():
            continue
        place.mkdir(parents=True)
        for name, content in volume.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
    return found


def container_spec(
    pod: Pod,
    container: ContainerManifest,
    options: RunOptions,
    volumes: Mapping[str, Path] = MappingProxyType({}),
) -> ContainerSpec:
    """Return what the runtime is given: the pod's words and the plugins' answers.

    `$(NAME)` in its command is of its own variables and the plugins', not of the image's.
    """
    own = expand_environment(container.environment, options.environment)
    variables = {**options.environment, **own}
    # The image is the host, with our programs and this Python in front.
    path = (str(PROGRAMS), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    image = {name: os.environ[name] for name in _KEPT if name in os.environ}
    image |= {"PATH": os.pathsep.join(path), "HOSTNAME": pod.name}
    mounts = []
    for mount in sorted(container.mounts, key=lambda one: one.path.count("/")):  # outer ones first
        place = volumes[mount.volume] / mount.sub_path
        if mount.sub_path and not place.exists() and volumes[mount.volume].is_dir():
            # The volume was made for the pod: a subPath that it lacks is a directory.
            place.mkdir(parents=True)
        mounts.append(BindMount(str(place), mount.path, read_only=mount.read_only))
    return ContainerSpec(
        command=tuple(expand(word, variables) for word in container.command),
        environment={**image, **variables},
        directory=container.directory,
        devices=tuple(BindMount(row.host_path, row.container_path) for row in options.devices),
        mounts=(
            *mounts,
            *(
                BindMount(row.host_path, row.container_path, read_only=row.read_only)
                for row in options.mounts
            ),
        ),
    )
