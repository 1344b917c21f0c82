"""A folder of driver libraries for the programs of a container: with the shim in front, or not.

The volume manager mirrors a whole driver (gpumanager.volume); this is the little of it that a
program needs to find the driver and nothing else.
"""

import contextlib
from pathlib import Path

from gpumanager.volume.errors import SymbolsUnreadable
from gpumanager.volume.symbols import exported_names, keep_exports
from vcuda_shim import LINK_CUDA, LINK_NVML, SHIM_CUDA, SHIM_NVML


def lay_out(folder: Path, cuda: Path, nvml: Path, *, shim: bool = True) -> Path:
    """Make `folder`, for LD_LIBRARY_PATH, over a driver's two files.

    The driver is always there under the names by which what stands in front of it needs it.
    """
    folder.mkdir(parents=True)
    (folder / "libvcuda-real.so.1").symlink_to(cuda)
    (folder / "libvcuda-real-ml.so.1").symlink_to(nvml)
    if shim:
        for driver, files in ((cuda, (SHIM_CUDA, LINK_CUDA)), (nvml, (SHIM_NVML, LINK_NVML))):
            for file in files:
                content = file.read_bytes()
                # Unreadable where it is a few functions of a test in front of a driver.
                with contextlib.suppress(SymbolsUnreadable):
                    content = keep_exports(content, exported_names(driver))
                (folder / file.name).write_bytes(content)
        (folder / "libvcuda-shim.so.1").symlink_to(SHIM_CUDA.name)
        (folder / "libvcuda-shim-ml.so.1").symlink_to(SHIM_NVML.name)
    else:
        (folder / SHIM_CUDA.name).symlink_to(cuda)
        (folder / SHIM_NVML.name).symlink_to(nvml)
    return folder
