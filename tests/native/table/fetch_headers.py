"""Fetch NVIDIA's headers from their Python packages, for the census of what they declare.

    python tests/native/table/fetch_headers.py FOLDER

One folder for each header and version, as native/table/headers.py reads them; some 20 MB in all.
What is there already is kept. To add a release, add a line to WANTED.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

WANTED: Final[Mapping[str, tuple[str, str]]] = {
    "cuda-12.8": ("nvidia-cuda-runtime-cu12", "12.8.90"),
    "cuda-12.9": ("nvidia-cuda-runtime-cu12", "12.9.79"),
    "cuda-13.0": ("nvidia-cuda-runtime", "13.0.96"),
    "cuda-13.1": ("nvidia-cuda-runtime", "13.1.80"),
    "cuda-13.2": ("nvidia-cuda-runtime", "13.2.86"),
    "cuda-13.3": ("nvidia-cuda-runtime", "13.3.29"),
    "cuda-13.4": ("nvidia-cuda-runtime", "13.4.92"),
    "cuda-13.5": ("nvidia-cuda-runtime", "13.5.37"),
    "nvml-13.5": ("nvidia-nvml-dev", "13.5.37"),
}
HEADERS: Final = {"cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "nvml.h"}
HOST: Final = re.compile(r"\w+://\S+")
"""An index is nobody else's business, and so is in no message."""


def fetch(package: str, version: str, into: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
        command += ["--only-binary=:all:", "--disable-pip-version-check", f"{package}=={version}"]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        if finished.returncode != 0:
            raise SystemExit(f"{package} {version}: {HOST.sub('', finished.stderr).strip()}")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if Path(name).name in HEADERS:
                    into.mkdir(parents=True, exist_ok=True)
                    (into / Path(name).name).write_bytes(archive.read(name))


def main(folder: Path) -> None:
    for name, (package, version) in WANTED.items():
        if not (folder / name).exists():
            fetch(package, version, folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
