"""containerd of a real node, whose pods have no network and one image, made of this host's files.

The simulated GPUs' control file stands for a driver in the kernel: it is shown to every container
as /dev/nvidiactl, but to those of the handler `driverless`.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from tests.e2e.node import enclosure, node_image
from tests.e2e.node.node_process import SECONDS, NodeProcess

NO_NETWORK: Final = Path(__file__).with_name("programs") / "no_network.sh"

FIRST_WITH_SPLIT_CRI: Final = 2
"""The major version since which images and containers are plugins of their own."""
SNAPSHOTTER: Final = "overlayfs"
LOCALHOST: Final = "127.0.0.1"
DRIVERLESS: Final = "driverless"
"""A handler for a RuntimeClass. In a user namespace runc empties a file that lies where it is to
show a device node, and the control file would be that."""


def version() -> str:
    """Of the containerd in PATH, as `1.6.20~ds1`."""
    return said_by("containerd", "--version").split()[2]


def major() -> int:
    """The first number of it."""
    return int(version().partition(".")[0])


class Containerd:
    """Its files below `directory`, its socket there too."""

    def __init__(self, directory: Path, device_state: Path) -> None:
        self.socket = directory / "containerd.sock"
        self._directory = directory
        self._device_state = device_state

    def start(self, process: NodeProcess) -> None:
        """Until it answers, and has the image."""
        archive = self._directory / "image.tar"
        node_image.write_image(archive)
        self._write_network()
        self._file.write_text(_toml(self._configuration()))
        self.launch(process)
        process.wait_for(lambda: _succeeds(*self._ctr, "version"), "containerd answers")
        self.load(archive)

    def launch(self, process: NodeProcess) -> None:
        """Once it was started, again; without waiting for anything."""
        process.start("containerd", "--config", self._file)

    def load(self, archive: Path) -> None:
        """Have the images of an archive."""
        run(*self._ctr, "images", "import", archive)

    def execute(self, container: str, *words: str) -> tuple[int, str]:
        """What `kubectl exec` does in a running container: exit status, and all that is said."""
        asked = ("tasks", "exec", "--exec-id", uuid4().hex, container, *words)
        ran = subprocess.run(
            [str(word) for word in (*self._ctr, *asked)],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        return ran.returncode, ran.stdout

    @property
    def _ctr(self) -> tuple[object, ...]:
        return "ctr", "--address", self.socket, "--namespace", "k8s.io"

    @property
    def _file(self) -> Path:
        return self._directory / "containerd.toml"

    @property
    def _cni_plugins(self) -> Path:
        return self._directory / "cni-plugins"

    @property
    def _networks(self) -> Path:
        """Not the plugins' folder: libcni reads `<networks>/nowhere` as the folder of the network
        `nowhere`, and containerd 2 is never ready where that is the plugin's program."""
        return self._directory / "cni"

    def _write_network(self) -> None:
        for folder in (self._cni_plugins, self._networks):
            folder.mkdir(exist_ok=True)
        for name in ("loopback", "nowhere"):
            shutil.copy2(NO_NETWORK, self._cni_plugins / name)
        network = {"cniVersion": "0.4.0", "name": "nowhere", "plugins": [{"type": "nowhere"}]}
        (self._networks / "nowhere.conflist").write_text(json.dumps(network))

    def _configuration(self) -> Mapping[str, Any]:
        split = major() >= FIRST_WITH_SPLIT_CRI
        return {
            "version": 3 if split else 2,
            "root": str(self._directory / "containerd"),
            "state": "/run/containerd",
            "oom_score": 0,
            "grpc": {"address": str(self.socket)},
            "plugins": {
                **(self._split_cri() if split else self._cri()),
                "io.containerd.internal.v1.opt": {"path": str(self._directory / "opt")},
            },
        }

    def _cri(self) -> Mapping[str, Any]:
        """Before containerd 2: one plugin does all of CRI."""
        cri = {
            "sandbox_image": node_image.NAME,
            "restrict_oom_score_adj": True,
            "stream_server_address": LOCALHOST,
            "cni": {"bin_dir": str(self._cni_plugins), "conf_dir": str(self._networks)},
            "containerd": {"snapshotter": SNAPSHOTTER, "runtimes": self._runtimes()},
        }
        return {"io.containerd.grpc.v1.cri": cri}

    def _split_cri(self) -> Mapping[str, Any]:
        images = {"snapshotter": SNAPSHOTTER, "pinned_images": {"sandbox": node_image.NAME}}
        containers = {
            "restrict_oom_score_adj": True,
            "cni": {"bin_dirs": [str(self._cni_plugins)], "conf_dir": str(self._networks)},
            "containerd": {"runtimes": self._runtimes()},
        }
        return {
            "io.containerd.cri.v1.images": images,
            "io.containerd.cri.v1.runtime": containers,
            "io.containerd.grpc.v1.cri": {"stream_server_address": LOCALHOST},
        }

    def _runtimes(self) -> Mapping[str, Any]:
        runc = {
            "runtime_type": "io.containerd.runc.v2",
            "options": {"SystemdCgroup": enclosure.cgroup_driver() == "systemd"},
        }
        shows = {"base_runtime_spec": str(self._base_specification())}
        return {"runc": runc | shows, DRIVERLESS: runc}

    def _base_specification(self) -> Path:
        """The runtime's own, and the simulated GPUs' state where a driver would have its node."""
        specification = json.loads(said_by("ctr", "oci", "spec"))
        specification["mounts"].append(
            {
                "destination": "/dev/nvidiactl",
                "type": "bind",
                "source": str(self._device_state),
                "options": ["bind", "rw"],
            }
        )
        path = self._directory / "base-spec.json"
        path.write_text(json.dumps(specification))
        return path


def _toml(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """As TOML; JSON's values are TOML's."""
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    head = [f"[{'.'.join(map(json.dumps, path))}]"] if path and values else []
    lines = [*head, *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join([*lines, *(_toml(table, (*path, key)) for key, table in tables.items())])


def said_by(*command: object) -> str:
    """What a command prints."""
    return subprocess.run(
        [str(word) for word in command], check=True, capture_output=True, text=True, timeout=SECONDS
    ).stdout


def run(*command: object) -> None:
    """A command that has to succeed."""
    subprocess.run(
        [str(word) for word in command], check=True, capture_output=True, timeout=SECONDS
    )


def _succeeds(*command: object) -> bool:
    words = [str(word) for word in command]
    try:
        ran = subprocess.run(words, check=False, capture_output=True, timeout=30)
    except subprocess.TimeoutExpired:
        return False
    return ran.returncode == 0
