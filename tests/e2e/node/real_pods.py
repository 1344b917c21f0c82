"""Pods on a real node: made from YAML or in a line, awaited, read, removed."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from gpumanager.gpu.values import GpuUUID
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.container import kernel
from gpumanager.units import GIB, MIB
from tests.e2e.cluster.api_client import NOT_FOUND, ApiClient, ApiError, Object, silent
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_node import NODE

PODS: Final = "/api/v1/namespaces/default/pods"
EVENTS: Final = "/api/v1/namespaces/default/events"
LOGS: Final = Path("/var/log/pods")
GRACE_SECONDS: Final = 1
CHEAT: Final = "default/cheat"
"""The one pod that goes round the shim: the auditor is to accuse nobody else."""

_QUERIED: Final = re.compile(r"free of ([0-9.]+) ([MG]iB)")
_DEVICE: Final = re.compile(r"device \d+: .*(GPU-[0-9a-f-]{36}).* of ([0-9.]+) ([MG]iB)")
_UUID: Final = re.compile(r"device \d+: .*(GPU-[0-9a-f-]{36})")
_CONTAINER_ID: Final = re.compile(r"[/-]([0-9a-f]{64})(?:\.scope)?$", re.MULTILINE)
_UNITS: Final = {"MiB": MIB, "GiB": GIB}

UID: Final = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
"""A variable: the pod's own UID, as only the kubelet tells it."""


def example(path: Path, **fields: Any) -> list[dict[str, Any]]:
    """The pods of an example, whose image is not to be pulled; fields: of their specs besides."""
    pods = [prepared(pod) for pod in yaml.safe_load_all(path.read_text())]
    for one in pods:
        one["spec"] |= fields
    return pods


def prepared(pod: dict[str, Any]) -> dict[str, Any]:
    pod["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
    for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
        container["imagePullPolicy"] = "Never"
    return pod


def container(name: str, command: str, cores: int, blocks: int, **fields: Any) -> dict[str, Any]:
    """A container that runs a shell's command line and knows its pod's UID."""
    return {
        "name": name,
        "image": "local",
        "command": ["sh", "-c", command],
        "env": [UID],
        "resources": {"limits": {VCORE: cores, VMEMORY: blocks}},
        **fields,
    }


def pod(name: str, *containers: object, **fields: Any) -> dict[str, Any]:
    """A pod of such containers; fields: of its spec."""
    spec = {"restartPolicy": "Never", "containers": list(containers), **fields}
    return prepared({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


class RealPods:
    """The pods of one test."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._made: dict[str, str] = {}

    def create(self, described: Object) -> str:
        """Returns its UID."""
        name = described["metadata"]["name"]
        self._made[name] = str(self._api.create(PODS, described)["metadata"]["uid"])
        return self._made[name]

    def uid(self, name: str) -> str:
        return self._made[name]

    def described(self, name: str) -> dict[str, Any]:
        """The pod as the API server has it."""
        found: dict[str, Any] = self._api.get(f"{PODS}/{name}")
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.described(name)["status"]
        return found

    def wait(self, name: str, until: Callable[[Object], bool], what: str) -> dict[str, Any]:
        """Its status, once that is as it should be; the test fails with the last one."""

        def asked() -> dict[str, Any] | None:
            if status := silent(lambda: self.status(name)):
                last.append(status)
            return status if status and until(status) else None

        last: list[dict[str, Any]] = []
        try:
            return wait_for(asked, f"{name}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {last[-1:]}") from None

    def ended(self, name: str) -> dict[str, Any]:
        return self.wait(name, lambda s: s["phase"] in {"Succeeded", "Failed"}, "it has ended")

    def running(self, name: str) -> dict[str, Any]:
        """All its containers run."""
        return self.wait(
            name,
            lambda s: s["phase"] == "Running" and all("running" in one for one in states(s)),
            "it runs",
        )

    def container_ids(self, name: str) -> dict[str, str]:
        """By container, without the runtime's name, once the kubelet tells them: later than
        containers print, where all of them share one processor."""

        def all_have(status: Object) -> bool:
            found = status.get("containerStatuses", ())
            return bool(found) and all("containerID" in one for one in found)

        status = self.wait(name, all_have, "its containers have IDs")
        return {
            one["name"]: one["containerID"].rpartition("/")[2]
            for one in status["containerStatuses"]
        }

    def log(self, name: str, container: str, attempt: int = 0) -> str:
        """Whole lines that a container has printed, without the runtime's marks."""
        path = LOGS / f"default_{name}_{self.uid(name)}" / container / f"{attempt}.log"
        *lines, _ = path.read_text(errors="replace").split("\n") if path.exists() else [""]
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def printed(self, name: str, container: str, words: str, attempt: int = 0) -> str:
        """Its log, once it has these words; attempt: how often it was started before."""
        wait_for(lambda: words in self.log(name, container, attempt), f"{name} prints {words!r}")
        return self.log(name, container, attempt)

    def warnings(self, uid: str) -> set[str]:
        """Reasons of the warnings about a pod."""
        return {reason for reason, _ in self.warned(uid)}

    def warned(self, uid: str) -> set[tuple[str, str]]:
        """Reasons and messages of these."""
        selected = f"{EVENTS}?fieldSelector=involvedObject.uid={uid},type=Warning"
        return {(one["reason"], one["message"]) for one in self._api.get(selected)["items"]}

    def static_logs(self, name: str, container: str) -> list[Path]:
        """Of a pod of the kubelet's own, whose UID nobody told us."""
        return list(LOGS.glob(f"default_{name}_*/{container}/0.log"))

    def static_is_there(self, name: str) -> bool:
        return not self._is_gone(name)

    def delete(self, *names: str) -> None:
        """Until none of them is there any more."""
        named = names or tuple(self._made)
        for name in named:
            self._api.delete(f"{PODS}/{name}", GRACE_SECONDS)
        for name in named:
            wait_for(partial(self._has_gone, name), f"{name} is gone")
            self._made.pop(name)

    def exists(self, name: str) -> bool:
        return not self._is_gone(name)

    def _has_gone(self, name: str) -> bool:
        """Where no kubelet would say that it has ended, that is said here: a node may be found even
        while it is being deleted."""
        pod = silent(lambda: self.described(name))
        if pod and pod["spec"].get("nodeName", NODE) != NODE:
            self._api.delete(f"{PODS}/{name}", 0)
        return self._is_gone(name)

    def _is_gone(self, name: str) -> bool:
        try:
            self.status(name)
        except ApiError as error:
            return error.status == NOT_FOUND
        return False


def memory_seen(log: str) -> int:
    """How much GPU memory a program was told that its device has, by `cuda-play query`."""
    found = _QUERIED.search(log)
    assert found is not None, f"no answer of a query in {log!r}"
    return round(float(found[1]) * _UNITS[found[2]])


def gpus_seen(log: str) -> dict[GpuUUID, int]:
    """The GPUs that a program saw, and how much memory it was told that each has."""
    return {
        GpuUUID(uuid): round(float(size) * _UNITS[unit])
        for uuid, size, unit in _DEVICE.findall(log)
    }


def uuids_seen(log: str) -> list[GpuUUID]:
    """Of the GPUs that a program saw, by `cuda-play query`."""
    return [GpuUUID(found) for found in _UUID.findall(log)]


def mount_namespaces() -> dict[str, int]:
    """Of every container that runs now, by its ID: by it the simulated GPUs keep their account."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            known = _CONTAINER_ID.search((process / "cgroup").read_text())
            if known:
                found[known[1]] = kernel.mount_namespace(process.name)
        except OSError:
            continue
    return found


def states(status: Object) -> Iterator[Mapping[str, Any]]:
    """Of the containers, init containers left out."""
    for one in status.get("containerStatuses", ()):
        yield one["state"]


def exit_codes(status: Object) -> dict[str, int]:
    """By container, of all that ended, init containers too."""
    found = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return {
        one["name"]: one["state"]["terminated"]["exitCode"]
        for one in found
        if "terminated" in one["state"]
    }
