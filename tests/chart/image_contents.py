"""What may be in the image beside its base: the rules, and what breaks them in a folder of files.

Other packages' files are theirs to name; of ours there is what `image_files.txt` lists and nothing
else, and nothing is there that nobody runs.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import image

from tests.native.table import elf
from vcuda_shim.build import MACHINES

LISTED: Final = tuple(
    line
    for line in Path(__file__).with_name("image_files.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
FORBIDDEN: Final = re.compile(
    r"/tests?/|\.(c|cc|h|hpp|a|o|pyi|pyx|pxd)$|libcuda\.so\.1$|libnvidia-ml\.so\.1$|\.(pem|key)$"
)
OURS: Final = re.compile(r"opt/gpu-manager/(gpumanager|vcuda_shim|gpu_manager-)|usr/")
CERTIFICATES: Final = (
    "opt/gpu-manager/grpc/_cython/_credentials/roots.pem",
    "opt/gpu-manager/certifi/cacert.pem",
)
"""gRPC's own list of public authorities, and that of the Kubernetes client's libraries."""
LIBRARIES: Final = "opt/gpu-manager/vcuda_shim/lib"
EM: Final = {"aarch64": "EM_AARCH64", "x86_64": "EM_X86_64"}


def files(root: Path) -> list[str]:
    """What was put together, by names below `root`, which may be a whole image."""
    folder = root / image.SITE
    found = [str(one.relative_to(root)) for one in folder.rglob("*") if not one.is_dir()]
    return sorted([*found, image.LAUNCHER] if (root / image.LAUNCHER).exists() else found)


def size(root: Path) -> int:
    """Bytes of it."""
    return sum((root / name).lstat().st_size for name in files(root))


def unlisted(names: Iterable[str], listed: Sequence[str] = LISTED) -> list[str]:
    """Files of ours that no pattern names."""
    ours = (name for name in names if OURS.match(name))
    return [name for name in ours if not any(fnmatch(name, pattern) for pattern in listed)]


def unmet(names: Iterable[str], listed: Sequence[str] = LISTED) -> list[str]:
    """Patterns that no file of ours meets."""
    ours = [name for name in names if OURS.match(name)]
    return [pattern for pattern in listed if not any(fnmatch(name, pattern) for name in ours)]


def of_no_use(names: Iterable[str]) -> list[str]:
    """Files that nobody runs, and keys; the shims have a driver's name."""
    found = (name for name in names if FORBIDDEN.search(name) and name not in CERTIFICATES)
    return [name for name in found if not name.startswith(f"{LIBRARIES}/shim")]


def with_both_machines(listed: Sequence[str] = LISTED) -> tuple[str, ...]:
    """The list of the whole image: a test makes it with this machine's shims alone."""
    shims = [one for one in listed if "/lib/shim/" in one]
    return (*listed, *(one.replace("/shim/", f"/shim-{of}/") for of in MACHINES for one in shims))


def of_another_machine(root: Path) -> list[str]:
    """Shims that are not for the machine that their folder names."""
    found = ((of, one) for of in EM for one in sorted((root / LIBRARIES / f"shim-{of}").iterdir()))
    return [str(one.relative_to(root)) for of, one in found if elf.machine(one) != EM[of]]


def faults(root: Path) -> list[str]:
    """What is wrong with a whole image, in words."""
    names, listed = files(root), with_both_machines()
    kinds = {
        "not listed": unlisted(names, listed),
        "not there": unmet(names, listed),
        "of no use": of_no_use(names),
    }
    wrong = [f"{kind}: {name}" for kind, found in kinds.items() for name in found]
    if wrong:
        return wrong
    return [f"for another machine: {name}" for name in of_another_machine(root)]
