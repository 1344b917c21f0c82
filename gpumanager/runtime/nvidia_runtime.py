"""What on a node mounts the driver's own libraries into containers, past the shims.

NVIDIA's container runtime does, into each container whose environment names GPUs, where it is the
default one. CDI does, into each that asks for a device of NVIDIA's by name. Both are read from the
configuration files of the usual runtimes, below the host's root.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

TOML: Final = (
    "etc/containerd/config.toml",
    "etc/containerd/conf.d/*.toml",
    "var/lib/rancher/*/agent/etc/containerd/config.toml",
    "etc/crio/crio.conf",
    "etc/crio/crio.conf.d/*",
)
JSON: Final = ("etc/docker/daemon.json",)
CDI: Final = ("etc/cdi/*", "var/run/cdi/*", "run/cdi/*")

DEFAULT_KEYS: Final = ("default_runtime_name", "default_runtime", "default-runtime")
"""containerd's, CRI-O's, Docker's."""
VENDOR: Final = "nvidia"
CDI_KIND: Final = "nvidia.com/"


def nvidia_defaults(root: Path) -> tuple[Path, ...]:
    """Find configuration files, as the host names them, that default to NVIDIA's runtime."""
    found = [*_files(root, TOML, tomllib.loads), *_files(root, JSON, json.loads)]
    return tuple(path for path, text in found if any(VENDOR in one for one in _defaults(text)))


def nvidia_devices(root: Path) -> tuple[Path, ...]:
    """Find CDI's descriptions of NVIDIA's devices."""
    return tuple(path for path, text in _files(root, CDI, str) if CDI_KIND in text)


def _files(
    root: Path, patterns: tuple[str, ...], parse: Callable[[str], Any]
) -> Iterator[tuple[Path, Any]]:
    """Yield those that can be read: a runtime would not read the others, either."""
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        try:
            yield Path("/") / path.relative_to(root), parse(path.read_text())
        except (OSError, ValueError):
            continue


def _defaults(settings: object) -> Iterator[str]:
    """Yield the names of default runtimes, at any depth a version of the runtime has them."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            if key in DEFAULT_KEYS and isinstance(value, str):
                yield value
            yield from _defaults(value)
