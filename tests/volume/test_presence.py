"""In a share dlsym finds what the node's driver has and nothing else, by each library's name."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

import vcuda_shim
from gpumanager.agent.host import SHIMS
from gpumanager.volume.config import SHIPPED, read_config
from gpumanager.volume.manager import publish
from gpumanager.volume.values import DriverVolumes
from tests.native.table.hook_table import RECORDED, declared, hooked, recorded, unhooked
from tests.volume.driver_host import LIBS, VERSION, FakeHost, Parts

pytest_plugins = ["tests.volume.volume_fixtures"]

SONAMES = {"libcuda": "libcuda.so.1", "libnvidia-ml": "libnvidia-ml.so.1"}
RELEASES = sorted(file.stem.removeprefix("libcuda-") for file in RECORDED.glob("libcuda-*.txt"))
SIMULATED = (vcuda_shim.SIMULATED_DRIVER, vcuda_shim.SIMULATED_DRIVER_13)
CONFIG = read_config(SHIPPED)
FIND = Path(__file__).with_name("programs") / "find_functions.py"

Driver = Callable[[Parts, str], Path]
"""The file of one library, by the beginning of its name."""


def as_recorded(release: str, parts: Parts, library: str) -> Path:
    """A library that has the names of this release, and nothing behind them."""
    kinds = {"FUNC": "void {}(void) {{}}", "OBJECT": "int {};"}
    lines = [kinds[kind].format(name) for name, kind in recorded(f"{library}-{release}")]
    folder = parts.folder / "recorded"
    folder.mkdir(exist_ok=True)
    name, flags = f"{library}.so.{release}", ("-Wl,-Bsymbolic",)
    return Parts(folder).library(name, "\n".join(lines), *flags, soname=SONAMES[library])


def driver_of(release: str) -> Driver:
    return lambda parts, library: as_recorded(release, parts, library)


def driver_in(folder: Path) -> Driver:
    return lambda _, library: next(iter(folder.glob(f"{library}.so.*")))


def known_names() -> list[str]:
    """All that any driver has, that a header declares, or that our libraries have."""
    ours = {name for one in ("cuda", "nvml") for name in (*hooked(one), *unhooked(one))}
    theirs = {
        name
        for release in RELEASES
        for library in SONAMES
        for name, _ in recorded(f"{library}-{release}")
    }
    return sorted(ours | theirs | declared("cuda") | declared("nvml"))


def found(library: Path | str, names: Sequence[str], folder: Path | str = "") -> list[str]:
    """Which of the names dlsym finds, in a process that has the folder's libraries."""
    command = [sys.executable, str(FIND), str(library)]
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    text = subprocess.run(
        command,
        input=json.dumps(names),
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    return list(json.loads(text))


def publish_over(host: FakeHost, driver: Driver, base: Path) -> DriverVolumes:
    """A host with this driver alone, published with the real shims."""
    for path in host.path(LIBS).iterdir():
        path.unlink()
    host.entries.clear()
    for library, soname in SONAMES.items():
        host.install(driver(host.parts, library), (soname,))
    return publish(CONFIG, root=host.root, shims=SHIMS, base=base)


@pytest.mark.parametrize(
    "driver",
    [*map(driver_of, RELEASES), *map(driver_in, SIMULATED)],
    ids=[*RELEASES, *(folder.name for folder in SIMULATED)],
)
def test_a_share_finds_exactly_the_functions_that_the_driver_has(
    host: FakeHost, tmp_path: Path, driver: Driver
) -> None:
    shared = publish_over(host, driver, tmp_path / "vdriver").shared / "lib64"

    names = known_names()
    for library, soname in SONAMES.items():
        own = found(driver(host.parts, library), names)
        assert len(own) > 300
        assert found(soname, names, shared) == own
        assert found(f"{library}.so", names, shared) == own


def test_after_an_upgrade_shares_find_what_the_new_driver_has(
    host: FakeHost, tmp_path: Path
) -> None:
    new = "cuCtxGetDevice_v2"
    older, newer = map(driver_in, SIMULATED)
    mounted = publish_over(host, older, tmp_path / "vdriver").shared.resolve() / "lib64"

    now = publish_over(host, newer, tmp_path / "vdriver").shared / "lib64"

    for name in ("libcuda.so", "libcuda.so.1"):
        assert found(name, [new], mounted) == []
        assert found(name, [new], now) == [new]


MAIN = "int cuInit(unsigned), {name}(void); int main(void) {{ return cuInit(0) + {name}(); }}"


@pytest.mark.parametrize("library", ["-lcuda", "-l:libcuda.so.1"])
def test_programs_are_linked_with_what_the_driver_has_and_with_nothing_else(
    host: FakeHost, tmp_path: Path, library: str
) -> None:
    shared = publish_over(host, driver_in(SIMULATED[0]), tmp_path / "vdriver").shared / "lib64"
    command = ["gcc", "-x", "c", "-", "-o", str(tmp_path / "program"), f"-L{shared}", library]

    def linking(name: str) -> str:
        source = MAIN.format(name=name)
        return subprocess.run(
            command, input=source, text=True, capture_output=True, check=False, timeout=300
        ).stderr

    assert linking("cuCtxSynchronize") == ""
    assert "undefined reference to `cuCtxSynchronize_v2'" in linking("cuCtxSynchronize_v2")


def unreadable(parts: Parts) -> bytes:
    """A driver's library that says to have its symbols where there is nothing."""
    library = parts.cuda().read_bytes()
    with parts.cuda().open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynamic")
        place = next(n for n, tag in enumerate(table.iter_tags()) if tag.entry.d_tag == "DT_SYMTAB")
        at = table["sh_offset"] + place * table["sh_entsize"]
    return library[: at + 8] + struct.pack("<Q", 1 << 40) + library[at + 16 :]


def overlaid(parts: Parts) -> bytes:
    """A driver's library with another one behind it that has the rest."""
    rest = parts.library("libcuda-rest.so", soname="libcuda-rest.so.1")
    source, flags = "int cuInit(void) { return 0; }", ("-Wl,-Bsymbolic,--no-as-needed", str(rest))
    return parts.library("overlaid.so", source, *flags, soname="libcuda.so.1").read_bytes()


@pytest.mark.parametrize(
    ("spoilt", "cause"), [(unreadable, "'NoneType'"), (overlaid, "it needs libcuda-rest.so.1")]
)
def test_where_it_is_not_sure_what_the_driver_has_shares_keep_every_hook_and_it_is_said(
    host: FakeHost, tmp_path: Path, spoilt: Callable[[Parts], bytes], cause: str
) -> None:
    host.install_driver()
    driver = host.path(LIBS) / f"libcuda.so.{VERSION}"
    driver.write_bytes(spoilt(host.parts))

    volumes = publish(CONFIG, root=host.root, shims=SHIMS, base=tmp_path / "vdriver")

    shared = volumes.shared / "lib64"
    assert (shared / "libcuda.so.1").read_bytes() == vcuda_shim.SHIM_CUDA.read_bytes()
    assert (shared / "libcuda.so").read_bytes() == vcuda_shim.LINK_CUDA.read_bytes()
    (said,) = volumes.warnings
    assert said.startswith(f"the functions that {driver} exports cannot be read: {cause}")
