"""Build all that a release has, without a registry and without Docker: `make release`.

    dist/gpu_manager-VERSION-…-linux_MACHINE.whl   for the Python that runs this, both machines
    dist/gpu_manager-VERSION.tar.gz                the sources
    dist/gpu-manager-VERSION.oci.tar               the image, both architectures
    dist/gpu-manager-VERSION-ARCHITECTURE.cdx.json what it is made of (CycloneDX)
    dist/gpu-manager-CHARTVERSION.tgz              the chart, as `helm package` makes it
    dist/SHA256SUMS                                for `sha256sum --check`

The image's base is not the Dockerfile's, which lies in a registry: it is Debian's Python, unpacked
(`base.py`). The image for the other architecture is put together without being run.
"""

import argparse
import gzip
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import base
import dockerfile
import image
import oci
import sbom
from elftools.elf.elffile import ELFFile

ROOT: Final = image.ROOT
CHART: Final = ROOT / "charts" / "gpu-manager"
KINDS: Final = ("wheel", "sdist", "image", "chart")
SUMS: Final = "SHA256SUMS"


def version() -> str:
    """Of the program, as Python spells it."""
    text = (ROOT / "gpumanager" / "__init__.py").read_text()
    return str(re.findall(r'(?m)^__version__ = "([^"]+)"', text)[0])


def epoch() -> int:
    """Of the commit, or what SOURCE_DATE_EPOCH says: no product knows when it was built."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(said)
    command = ("git", "-C", str(ROOT), "log", "-1", "--format=%ct")
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def build(out: Path, kinds: Sequence[str], architectures: Sequence[str]) -> list[str]:
    """What could not be had, in words; all else lies in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    missing = []
    if "sdist" in kinds:
        build_sdist(out)
    if "chart" in kinds:
        build_chart(out)
    with temporary() as work:
        if "wheel" in kinds:
            for architecture in architectures:
                shutil.copy2(wheel_of(architecture, work), out)
        if "image" in kinds:
            try:
                build_image(out, architectures, work)
            except base.CannotMake as error:
                missing.append(f"no image: {error}")
    write_sums(out)
    return missing


def wheel_of(architecture: str, work: Path) -> Path:
    """Ours, built once."""
    folder = work / architecture
    if folder.is_dir():
        return next(folder.iterdir())
    folder.mkdir()
    print(f"building for {architecture}", file=sys.stderr, flush=True)  # noqa: T201 - minutes
    return image.build_wheel(folder, image.ARCHITECTURES[architecture])


def build_sdist(out: Path) -> None:
    command = f"from setuptools import build_meta; build_meta.build_sdist({str(out)!r})"
    subprocess.run([sys.executable, "-c", command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def build_chart(out: Path) -> Path:
    """As `helm package` packs it; made without helm."""
    said = dict(re.findall(r"(?m)^(name|version): (\S+)$", (CHART / "Chart.yaml").read_text()))
    packed = out / f"{said['name']}-{said['version']}.tgz"
    plain = oci.tar_of(CHART, epoch(), f"{said['name']}/")
    packed.write_bytes(gzip.compress(plain, mtime=0))
    return packed


def build_image(out: Path, architectures: Sequence[str], wheels: Path) -> Path:
    """With its bills beside it. wheels: a folder for ours. Raises base.CannotMake."""
    name = f"gpu-manager:{version()}"
    said = dockerfile.read(dockerfile.FILE.read_text())
    made = oci.Archive(f"docker.io/library/{name}", epoch(), said.config(path=base.PATH))
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    for architecture in architectures:
        with temporary() as work:
            (work / "apt").mkdir()
            root, files = work / "root", work / "files"
            packages = base.make(root, architecture, work / "apt")
            machine = image.ARCHITECTURES[architecture]
            image.furnish(files, wheel=wheel_of(architecture, wheels), machine=machine)
            if lacking := missing_libraries(root, files):
                raise base.CannotMake(f"{architecture}: the base lacks {', '.join(lacking)}")
            digest = made.add(architecture, (root, files))
            bill = sbom.described(
                files / image.SITE,
                packages,
                image=name,
                digest=digest,
                epoch=epoch(),
                release=release,
            )
            (out / f"gpu-manager-{version()}-{architecture}.cdx.json").write_text(bill)
    archive = out / f"gpu-manager-{version()}.oci.tar"
    made.write(archive)
    return archive


def missing_libraries(root: Path, files: Path) -> list[str]:
    """What code of the packages asks its loader for, and neither they nor the base have.

    The driver's own libraries are found beside the shims, on nodes.
    """
    have = {path.name for folder in (root, files) for path in folder.rglob("*.so*")}
    ours = (path for path in files.rglob("*.so*") if path.is_file())
    native = (path for path in ours if not path.parent.name.startswith("shim-"))  # of each machine
    wanted = {name for path in native for name in needed_by(path)}
    return sorted(one for one in wanted - have if not one.startswith("libvcuda-"))


def needed_by(library: Path) -> list[str]:
    with library.open("rb") as content:
        dynamic = ELFFile(content).get_section_by_name(".dynamic")
        return [one.needed for one in dynamic.iter_tags("DT_NEEDED")] if dynamic else []


def write_sums(out: Path) -> None:
    files = sorted(path for path in out.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / SUMS).write_text("".join(lines))


@contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpu-manager-release-") as folder:
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, nargs="?", default=ROOT / "dist")
    parser.add_argument("--only", action="append", choices=KINDS, help="one kind; may be repeated")
    parser.add_argument(
        "--architecture",
        dest="architectures",
        action="append",
        choices=tuple(image.ARCHITECTURES),
        help="one architecture; may be repeated",
    )
    said = parser.parse_args()
    missing = build(said.out, said.only or KINDS, said.architectures or [*image.ARCHITECTURES])
    sys.stdout.write((said.out / SUMS).read_text())
    for line in missing:
        sys.stderr.write(f"{line}\n")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
