"""The files that vcuda-controller reads in a container: their bytes. Pure.

`vcuda.config` is a C struct of the original, in the machine's byte order, with a path's longest
length (FILENAME_MAX, 4096) between some of its fields; `pids.config` is pids of the host and
nothing else. The layout is the contract: programs that map it were built years ago.
"""

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.limits.values import Limit
from gpumanager.names import BOOKS_NAME, CONFIG_NAME, SOCKET_NAME
from gpumanager.units import CORES_PER_GPU, Bytes

VCUDA_CONFIG: Final = "vcuda.config"
PIDS_CONFIG: Final = "pids.config"

MAX_PIDS: Final = 1024
"""So many the original reads."""

_WORDS: Final = struct.Struct("=48si4044x4096s16sQiiiii4x")
"""pod_uid, limit, container_name, bus_id, gpu_memory, utilization, hard_limit, driver version
(major, minor), enable."""

_DIRECTORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_OURS: Final = frozenset({SOCKET_NAME, CONFIG_NAME, BOOKS_NAME, VCUDA_CONFIG, PIDS_CONFIG})
_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)")


class NotOriginal(GpuManagerError):
    """Bytes that are no `vcuda.config`."""


@dataclass(frozen=True, slots=True)
class VDevice:
    """What gpu-client says: the container of the device to register. Each field may be empty."""

    pod_uid: str
    container_name: str
    container_id: str


@dataclass(frozen=True, slots=True)
class LegacyConfig:
    """What one container may use, as the original has it.

    memory: bytes. cores: percent, 100 and more for whole GPUs, which are not limited. ceiling:
    percent it may burst up to; 0 for a hard limit. driver: major and minor version.
    """

    pod_uid: str
    container: str
    memory: Bytes
    cores: int
    ceiling: int
    driver: tuple[int, int] = (0, 0)


def original_config(
    pod_uid: str, container: str, limits: Sequence[Limit], driver: tuple[int, int]
) -> LegacyConfig:
    """Return all GPUs of a container together, as the original does. limits: none for whole."""
    cores = sum(limit.cores for limit in limits) if limits else CORES_PER_GPU
    ceiling = sum(limit.ceiling for limit in limits)
    return LegacyConfig(
        pod_uid,
        container,
        memory=Bytes(sum(limit.memory for limit in limits)),
        cores=cores,
        ceiling=ceiling if ceiling > cores else 0,
        driver=driver,
    )


def encode_config(config: LegacyConfig) -> bytes:
    return _WORDS.pack(
        _text(config.pod_uid, 48),
        config.ceiling,
        _text(config.container, 4096),
        b"",
        config.memory,
        config.cores,
        not config.ceiling,
        *config.driver,
        config.cores < CORES_PER_GPU,
    )


def decode_config(content: bytes) -> LegacyConfig:
    """Decode the bytes. Raises NotOriginal."""
    if len(content) != _WORDS.size:
        raise NotOriginal(f"{VCUDA_CONFIG} has {len(content)} bytes, not {_WORDS.size}")
    uid, ceiling, name, _bus, memory, cores, hard, major, minor, _enable = _WORDS.unpack(content)
    return LegacyConfig(
        _word(uid), _word(name), Bytes(memory), cores, 0 if hard else ceiling, (major, minor)
    )


def encode_pids(pids: Iterable[int]) -> bytes:
    """Encode in ascending order: the original bisects. The youngest where there are too many."""
    most = sorted(set(pids))[-MAX_PIDS:]
    return struct.pack(f"={len(most)}i", *most)


def decode_pids(content: bytes) -> tuple[int, ...]:
    whole = len(content) // 4
    return struct.unpack_from(f"={whole}i", content)


def driver_numbers(version: str) -> tuple[int, int]:
    """Return (555, 58) for `555.58.02`."""
    found = _NUMBERS.match(version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def names_directory(name: str) -> bool:
    """Return whether a container's ID or name can be that of a directory beside our own files."""
    return _DIRECTORY.fullmatch(name) is not None and name not in _OURS


def _text(text: str, size: int) -> bytes:
    """Encode it, cut so that a 0 ends it."""
    return text.encode()[: size - 1]


def _word(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode(errors="replace")
