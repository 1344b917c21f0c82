"""Where the container runtime listens: what the user sets, or where runtimes are known to listen.

The order of the known ones gives the kubelet's. dockershim and cri-dockerd have a socket only
where a kubelet works through them, while containerd listens wherever Docker is installed.
"""

from pathlib import Path
from typing import Final

from gpumanager.errors import InputError

KNOWN: Final = tuple(
    map(
        Path,
        (
            "/var/run/dockershim.sock",
            "/run/cri-dockerd.sock",
            "/run/crio/crio.sock",
            "/run/k3s/containerd/containerd.sock",
            "/run/k0s/containerd.sock",
            "/var/snap/microk8s/common/run/containerd.sock",
            "/run/containerd/containerd.sock",
        ),
    )
)

_SCHEME: Final = "unix://"


def parse_endpoint(text: str, flag: str = "--container-runtime-endpoint") -> Path:
    """Read `/run/….sock`, `unix:///run/….sock`, or Docker's `unix:////run/….sock`.

    Raises InputError.
    """
    path = text.removeprefix(_SCHEME)
    if "://" in path or not path.startswith("/"):
        raise InputError(flag, f"{text!r} is not the path of a socket; write {_SCHEME}/run/….sock")
    return Path("/" + path.lstrip("/"))


def candidates(asked: Path | None, docker: Path | None = None) -> tuple[Path, ...]:
    """Return the sockets to try, in order: the user's alone, if one is given.

    docker: of the flag that gpu-manager had before there was CRI. It may be Docker's own socket,
    where nothing speaks CRI, so that the known ones follow.
    """
    if asked is not None:
        return (asked,)
    return KNOWN if docker is None else (docker, *KNOWN)
