"""The simulated driver with a few functions more, or other ones, written in C before it."""

import subprocess
from pathlib import Path
from typing import Final

from driver_libraries import lay_out

from tests.native.shim_container import INCLUDE
from vcuda_shim import SIMULATED_DRIVER

FLAGS: Final = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")


def overlaid_libraries(folder: Path, source: str) -> Path:
    """For a container's library path: the shim before a driver that is `source`, and for all else
    the simulated one, which the source finds at the path SIMULATED."""
    (cuda,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    folder.mkdir()
    path, overlaid = folder / "path.so", folder / "libcuda.so.1.0"
    # What is linked with a library needs it by its soname: here, the simulated driver by its path.
    _gcc("-xc", "/dev/null", "-o", str(path), f"-Wl,-soname,{cuda}")
    _gcc(
        str(Path(__file__).with_name(source)),
        f"-I{INCLUDE}",
        f'-DSIMULATED="{cuda}"',
        *("-o", str(overlaid), "-Wl,-soname,libcuda.so.1,-Bsymbolic,--no-as-needed"),
        *(str(path), "-ldl"),
    )
    return lay_out(folder / "lib", overlaid, nvml)


def _gcc(*words: str) -> None:
    subprocess.run(["gcc", *FLAGS, *words], check=True, timeout=300)
