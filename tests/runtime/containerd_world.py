"""A real containerd with a root, a state and a socket of its own, for as long as a test needs it.

Needs root, containerd, runc and gcc. Containers run from one image of one static program, which is
made here; they share the host's network, so that no CNI is needed, and their cgroups lie below one
that is removed in the end.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import uuid
from pathlib import Path
from typing import Any, Self

import grpc.aio

from gpumanager import grpc_wire
from gpumanager.ids import ContainerID
from gpumanager.runtime import wire
from gpumanager.runtime.cri import AS_THE_KUBELET
from gpumanager.runtime.status import Bind, Container, LiveContainer
from tests.runtime.cri_create import call, entries, message

PROGRAMS = ("containerd", "containerd-shim-runc-v2", "runc", "ctr", "gcc")
IMAGE = "localhost/gm-pause:local"
STARTED_SECONDS = 120
_HOST_NETWORK = 2

_PAUSE = Path(__file__).with_name("programs") / "pause.c"

_CONFIG = """
version = 2
root = "{base}/root"
state = "{base}/state"
oom_score = 0
[grpc]
  address = "{base}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{base}/cni"
    conf_dir = "{base}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
[plugins."io.containerd.internal.v1.opt"]
  path = "{base}/opt"
"""


def missing() -> str | None:
    """Why none can run here; None where one can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return None if os.geteuid() == 0 else "a container runtime needs root"


class ContainerdWorld:
    """Use as an async context manager."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="gmc", dir="/tmp"))
        self.socket = self.base / "containerd.sock"
        self.parent = f"/{self.base.name}"
        self._process: asyncio.subprocess.Process | None = None
        self._channel: grpc.aio.Channel | None = None
        self._sandboxes: list[str] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        config = self.base / "containerd.toml"
        config.write_text(_CONFIG.format(base=self.base, image=IMAGE))
        with (self.base / "log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *("containerd", "--config", config), stdout=log, stderr=log, start_new_session=True
            )
        self._channel = wire.dial(self.socket)
        await self._answering()
        image = self.base / "image.tar"
        image.write_bytes(_image(self.base))
        await self._run("ctr", "-a", self.socket, "-n", "k8s.io", "images", "import", image)

    async def _answering(self) -> None:
        async with asyncio.timeout(STARTED_SECONDS):
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await grpc_wire.call(self.channel, wire.V1, wire.VERSION, AS_THE_KUBELET, 2)
                    return
                assert self._process is not None
                assert self._process.returncode is None, (self.base / "log").read_text()
                await asyncio.sleep(0.1)

    @property
    def channel(self) -> grpc.aio.Channel:
        assert self._channel is not None
        return self._channel

    async def run(self, cgroup: str, *, mounts: tuple[Bind, ...] = ()) -> LiveContainer:
        """A container in a pod of its own. cgroup: of the pod, with `{uid}` in it."""
        uid = str(uuid.uuid4())
        labels = {"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "trainer"}
        labels |= {"io.kubernetes.pod.namespace": "lab", "io.kubernetes.container.name": "main"}
        pod = self._pod(uid, labels, self.parent + cgroup.format(uid=uid))
        request = message("RunPodSandboxRequest")(config=pod)
        made = await call(self.channel, "RunPodSandbox", request, "RunPodSandboxResponse")
        self._sandboxes.append(made.pod_sandbox_id)
        name = await self._create(made.pod_sandbox_id, pod, labels, mounts)
        request = message("ContainerRequest")(container_id=name)
        await call(self.channel, "StartContainer", request, "Empty")
        container = Container(ContainerID(name), uid, "lab", "trainer", "main")  # type: ignore[arg-type]
        return LiveContainer(
            container,
            mounts=mounts,
            devices=(Bind("/dev/null", "/dev/nvidia0"),),
            envs={"VCUDA_ALLOCATION": "n0nce", "PATH": "/of-the-image"},
            annotations={"tencent.com/vcuda-core": "30"},
        )

    async def _create(
        self, sandbox: str, pod: Any, labels: dict[str, str], mounts: tuple[Bind, ...]
    ) -> str:
        config = message("ContainerConfig")(
            metadata=message("Metadata")(name="main"),
            image=message("Image")(image=IMAGE),
            envs=entries({"VCUDA_ALLOCATION": "n0nce"}),
            mounts=[message("Mount")(container_path=m.container, host_path=m.host) for m in mounts],
            devices=[
                message("Device")(
                    container_path="/dev/nvidia0", host_path="/dev/null", permissions="rwm"
                )
            ],
            labels=entries(labels),
            annotations=entries({"tencent.com/vcuda-core": "30"}),
            log_path="main.log",
        )
        request = message("CreateContainerRequest")(
            pod_sandbox_id=sandbox, config=config, sandbox_config=pod
        )
        made = await call(self.channel, "CreateContainer", request, "CreateContainerResponse")
        return str(made.container_id)

    def _pod(self, uid: str, labels: dict[str, str], cgroup: str) -> Any:
        options = message("NamespaceOption")(network=_HOST_NETWORK)
        security = message("SandboxSecurity")(namespace_options=options)
        return message("PodConfig")(
            metadata=message("PodMetadata")(name="trainer", uid=uid, namespace="lab"),
            log_directory=str(self.base / "logs"),
            labels=entries({key: labels[key] for key in labels if "container" not in key}),
            linux=message("LinuxSandbox")(cgroup_parent=cgroup, security_context=security),
        )

    async def end(self, name: ContainerID) -> None:
        request = message("StopContainerRequest")(container_id=name, timeout=5)
        await call(self.channel, "StopContainer", request, "Empty")

    async def _run(self, *command: object) -> None:
        process = await asyncio.create_subprocess_exec(
            *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await asyncio.wait_for(process.communicate(), STARTED_SECONDS)
        assert process.returncode == 0, output.decode()

    async def __aexit__(self, *_: object) -> None:
        """Pods, containerd, files and cgroups go, each whatever the others do."""
        for sandbox in self._sandboxes:
            request = message("PodSandboxRequest")(pod_sandbox_id=sandbox)
            for method in ("StopPodSandbox", "RemovePodSandbox"):
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await call(self.channel, method, request, "Empty")
        if self._channel is not None:
            await self._channel.close(None)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            await asyncio.wait_for(self._process.wait(), STARTED_SECONDS)
        shutil.rmtree(self.base, ignore_errors=True)
        _remove_cgroups(self.base.name)


def _remove_cgroups(name: str) -> None:
    for top in (*Path("/sys/fs/cgroup").glob(f"*/{name}"), Path("/sys/fs/cgroup", name)):
        for path, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                Path(path).rmdir()


def _image(base: Path) -> bytes:
    """A docker archive: one layer with one program."""
    program = base / "pause"
    subprocess.run(["gcc", "-Os", "-static", "-o", program, _PAUSE], check=True, timeout=300)
    layer = _tar({"pause": program.read_bytes()})
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "Env": ["PATH=/of-the-image"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [IMAGE], "Layers": [f"{digest}/layer.tar"]}]
    files = {name: config, f"{digest}/layer.tar": layer}
    return _tar({**files, "manifest.json": json.dumps(manifest).encode()})


def _tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()
