"""From a host's driver to the directories containers mount, opened by real programs."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import vcuda_shim
from gpumanager.agent.host import SHIMS
from gpumanager.errors import InputError
from gpumanager.volume import manager
from gpumanager.volume.config import SHIPPED, read_config
from gpumanager.volume.errors import DriverNotFound, ShimUnusable
from gpumanager.volume.find import FoundLibrary, find_programs
from gpumanager.volume.host import Host
from gpumanager.volume.manager import publish
from gpumanager.volume.shims import Shims
from gpumanager.volume.values import DriverVolumes
from tests.volume.driver_host import LIBS, LIBS32, OLDER, VERSION, FakeHost, Parts
from tests.volume.elf_variants import as_32_bit

pytest_plugins = ["tests.volume.volume_fixtures"]

CONFIG = read_config(SHIPPED)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "vdriver"


@pytest.fixture
def host(host: FakeHost) -> FakeHost:
    """A machine with a driver."""
    host.install_driver()
    return host


def published(host: FakeHost, base: Path, shims: Shims | None = None) -> DriverVolumes:
    return publish(CONFIG, root=host.root, shims=shims or host.parts.shims(), base=base)


def links(directory: Path) -> dict[str, str]:
    return {path.name: str(path.readlink()) for path in directory.iterdir() if path.is_symlink()}


CALLS = Path(__file__).with_name("programs") / "call_functions.py"


def call(volume: Path, *functions: str) -> dict[str, object]:
    """What `library:function` returns in a fresh process that has the volume's libraries."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(volume / "lib64")}
    command = [sys.executable, str(CALLS), *functions]
    text = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=300
    ).stdout
    return dict(json.loads(text))


def test_a_program_in_the_shared_volume_meets_the_shim_and_falls_through(
    host: FakeHost, base: Path
) -> None:
    volumes = published(host, base)

    results = call(
        volumes.shared,
        "libcuda.so.1:cuInit",
        "libcuda.so:cuInit",
        "libcuda.so.1:cuNew",
        "libnvidia-ml.so.1:nvmlInit_v2",
        "libnvidia-ml.so.1:nvmlNew",
    )

    mapped = results.pop("mapped")
    assert results == {
        "libcuda.so.1:cuInit": 42,
        "libcuda.so:cuInit": 42,
        "libcuda.so.1:cuNew": 7,
        "libnvidia-ml.so.1:nvmlInit_v2": 42,
        "libnvidia-ml.so.1:nvmlNew": 8,
    }
    assert isinstance(mapped, list)
    assert [re.sub("-[0-9a-f]{16}", "-DIGEST", name) for name in mapped] == [
        f"libcuda.so.{VERSION}",
        f"libnvidia-ml.so.{VERSION}",
        "libvcuda-link-DIGEST.so",
        "libvcuda-shim-DIGEST.so",
        "libvcuda-shim-ml-DIGEST.so",
    ]


def original(folder: Path) -> Path:
    """A volume.conf of gpu-manager, whose second volume has another name, in its own order."""
    libraries = ["libnvidia-ml.so", "libcuda.so", "libcuda-control.so", "libnvidia-compiler.so"]
    shared = {"binaries": ["nvidia-smi", "gpu-client"], "libraries": libraries}
    whole = {"binaries": ["nvidia-smi"], "libraries": [*libraries[:2], libraries[3]]}
    volumes = [
        {"name": name, "base": "/etc/gpu-manager/vdriver", "mode": "ro", "components": components}
        for name, components in (("nvidia", shared), ("exclusive", whole))
    ]
    path = folder / "volume.conf"
    path.write_text(json.dumps({"volume": volumes}))
    return path


def test_a_configuration_of_the_original_is_served_by_our_shims(
    host: FakeHost, base: Path, tmp_path: Path
) -> None:
    host.install(host.parts.library("libcuda-control.so", "int cuInit(void) { return 1; }"))
    config = read_config(original(tmp_path))

    volumes = publish(config, root=host.root, shims=host.parts.shims(), base=base)

    assert (volumes.shared, volumes.whole) == (base / "nvidia", base / "exclusive")
    assert call(volumes.shared, "libcuda.so.1:cuInit")["libcuda.so.1:cuInit"] == 42
    assert call(volumes.whole, "libcuda.so.1:cuInit")["libcuda.so.1:cuInit"] == 100
    assert (volumes.shared / "lib64" / "libcuda-control.so").exists()


def test_a_program_in_the_whole_volume_meets_only_the_driver(host: FakeHost, base: Path) -> None:
    volumes = published(host, base)

    results = call(volumes.whole, "libcuda.so.1:cuInit", "libcuda.so:cuInit")

    assert results == {
        "libcuda.so.1:cuInit": 100,
        "libcuda.so:cuInit": 100,
        "mapped": [f"libcuda.so.{VERSION}"],
    }


def test_the_names_in_the_shared_volume_lead_where_they_should(host: FakeHost, base: Path) -> None:
    found = links(published(host, base).shared / "lib64")

    shim, ml = found.pop("libcuda.so.1"), found.pop("libnvidia-ml.so.1")
    assert re.fullmatch(r"libvcuda-shim-[0-9a-f]{16}\.so", shim)
    assert re.fullmatch(r"libvcuda-shim-ml-[0-9a-f]{16}\.so", ml)
    assert re.fullmatch(r"libvcuda-link-[0-9a-f]{16}\.so", found.pop("libcuda.so"))
    assert re.fullmatch(r"libvcuda-link-ml-[0-9a-f]{16}\.so", found.pop("libnvidia-ml.so"))
    assert found == {
        "libvcuda-shim.so.1": shim,
        "libvcuda-shim-ml.so.1": ml,
        "libvcuda-real.so.1": f"libcuda.so.{VERSION}",
        "libvcuda-real-ml.so.1": f"libnvidia-ml.so.{VERSION}",
    }


PROGRAM = """
int cuInit(unsigned flags), cuDriverGetVersion(int *version), nvmlInit_v2(void);
int main(void) { int version; return cuInit(0) != 100 || cuDriverGetVersion(&version) != 0
                        || nvmlInit_v2() != 9; }
"""


def test_a_program_is_linked_and_runs_with_what_the_shared_volume_has(
    host: FakeHost, base: Path, tmp_path: Path
) -> None:
    for name in ("libcuda.so", "libnvidia-ml.so"):
        library = vcuda_shim.SIMULATED_DRIVER / f"{name}.{VERSION}"
        (host.path(LIBS) / library.name).write_bytes(library.read_bytes())
    libraries = published(host, base, SHIMS).shared / "lib64"
    program = tmp_path / "program"

    linking = ["gcc", "-x", "c", "-", "-o", str(program), f"-L{libraries}", "-lcuda", "-lnvidia-ml"]
    subprocess.run(linking, input=PROGRAM, text=True, check=True, timeout=300)

    nodes = {"LD_LIBRARY_PATH": str(libraries), "GPUSIM_DEV": str(tmp_path)}
    assert subprocess.run([program], env=nodes, check=False, timeout=300).returncode == 0


def test_the_version_and_the_stable_names_are_handed_on(host: FakeHost, base: Path) -> None:
    volumes = published(host, base)

    assert volumes == DriverVolumes(
        base / "nvidia", base / "nvidia-compute", base / "origin", VERSION
    )
    assert (volumes.shared / "bin" / "nvidia-smi").stat().st_mode & 0o111


def test_every_library_gets_the_names_it_is_opened_by(host: FakeHost, base: Path) -> None:
    parts = host.parts
    full = f"libnvidia-glcore.so.{VERSION}"
    host.install(parts.library(f"libGLX_nvidia.so.{VERSION}", soname="libGLX_nvidia.so.0"))
    host.install(parts.library(f"libnvidia-nvvm.so.{VERSION}", soname="libnvidia-nvvm.so.4"))
    host.install(parts.library(full, soname=full))

    found = links(published(host, base).whole / "lib64")

    for name, target in {
        "libGLX_nvidia.so.0": f"libGLX_nvidia.so.{VERSION}",
        "libGLX_nvidia.so": f"libGLX_nvidia.so.{VERSION}",
        "libGLX_indirect.so.0": f"libGLX_nvidia.so.{VERSION}",
        "libnvidia-nvvm.so.4": f"libnvidia-nvvm.so.{VERSION}",
        "libnvidia-nvvm.so": f"libnvidia-nvvm.so.{VERSION}",
    }.items():
        assert found[name] == target
    assert "libnvidia-glcore.so" not in found


OPENCL = f"libnvidia-opencl.so.{VERSION}"


@pytest.mark.parametrize(("wish", "opencl"), [({}, False), ({"opencl": True}, True)])
def test_opencl_carries_its_own_driver_and_is_in_shares_where_the_operator_wants_it(
    host: FakeHost, base: Path, wish: dict[str, bool], *, opencl: bool
) -> None:
    host.install(host.parts.library(OPENCL, soname="libnvidia-opencl.so.1"))

    volumes = publish(CONFIG, root=host.root, shims=host.parts.shims(), base=base, **wish)

    assert bool(list((volumes.shared / "lib64").glob("libnvidia-opencl*"))) is opencl
    assert (volumes.whole / "lib64" / "libnvidia-opencl.so.1").exists()


def test_the_volume_without_graphics_has_the_shims_and_takes_no_second_copy_of_the_driver(
    host: FakeHost, base: Path
) -> None:
    drawing = {"libGLX_nvidia.so.0", "libEGL_nvidia.so.0", f"libnvidia-glcore.so.{VERSION}"}
    for name in drawing:
        host.install(host.parts.library(name, soname=name))

    volumes = published(host, base)

    shared, compute = (
        {one.name for one in (volume / "lib64").iterdir() if not one.is_symlink()}
        for volume in (volumes.shared, volumes.compute)
    )
    assert shared - compute == drawing
    assert call(volumes.compute, "libcuda.so.1:cuInit")["libcuda.so.1:cuInit"] == 42
    cuda = Path("lib64") / f"libcuda.so.{VERSION}"
    assert (volumes.compute / cuda).samefile(volumes.shared / cuda)


def test_32_bit_programs_keep_the_drivers_own(host: FakeHost, base: Path, tmp_path: Path) -> None:
    library = tmp_path / f"libcuda.so.{VERSION}"
    library.write_bytes(as_32_bit("libcuda.so.1"))
    host.install(library, ("libcuda.so.1",), where=LIBS32)

    shared = published(host, base).shared

    assert links(shared / "lib") == {
        "libcuda.so.1": f"libcuda.so.{VERSION}",
        "libcuda.so": f"libcuda.so.{VERSION}",
    }
    assert (shared / "lib" / "libcuda.so.1").read_bytes() == library.read_bytes()


def test_libraries_of_another_driver_version_stay_out(host: FakeHost, base: Path) -> None:
    parts = host.parts
    host.install(parts.cuda(OLDER))
    for version in (OLDER, VERSION):
        soname = "libnvidia-ptxjitcompiler.so.1"
        host.install(parts.library(f"libnvidia-ptxjitcompiler.so.{version}", soname=soname))

    volumes = published(host, base)

    assert not list(volumes.shared.rglob(f"*{OLDER}"))
    ptx = volumes.shared / "lib64" / "libnvidia-ptxjitcompiler.so.1"
    assert ptx.readlink() == Path(f"libnvidia-ptxjitcompiler.so.{VERSION}")
    assert "left out: 550.54.14" in volumes.warnings[0]


def test_what_is_not_elf_is_left_out_returned_and_logged(
    host: FakeHost, base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = host.put_program("nvidia-debugdump", b"#!/bin/sh\n")
    said = f"{script} is left out: not an ELF file"

    with caplog.at_level(logging.WARNING, "gpumanager.volume"):
        volumes = published(host, base)

    assert volumes.warnings == (said,)
    assert caplog.messages == [said]
    assert not (volumes.shared / "bin" / "nvidia-debugdump").exists()


def test_publishing_again_changes_nothing(host: FakeHost, base: Path) -> None:
    published(host, base)
    before = {path: path.lstat().st_mtime_ns for path in base.rglob("*")}

    published(host, base)

    assert {path: path.lstat().st_mtime_ns for path in base.rglob("*")} == before


def test_an_upgraded_driver_is_published_beside_the_mounted_one(host: FakeHost, base: Path) -> None:
    mounted = published(host, base).shared.resolve()
    for path in host.path(LIBS).iterdir():
        path.unlink()
    host.entries.clear()
    (host.path("/usr/bin") / "nvidia-smi").unlink()
    host.install_driver("570.1.2")

    volumes = published(host, base)

    assert volumes.version == "570.1.2"
    assert volumes.shared.resolve() != mounted
    assert call(mounted, "libcuda.so.1:cuInit")["libcuda.so.1:cuInit"] == 42


def test_a_new_shim_does_not_touch_the_old_ones_file(host: FakeHost, base: Path) -> None:
    old = published(host, base, host.parts.shims(42)).shared.resolve()

    new = published(host, base, host.parts.shims(43)).shared

    assert call(old, "libcuda.so.1:cuInit")["libcuda.so.1:cuInit"] == 42
    assert call(new, "libcuda.so.1:cuInit")["libcuda.so.1:cuInit"] == 43


def test_a_driver_library_named_like_the_shim_moves_aside(host: FakeHost, base: Path) -> None:
    for path in list(host.path(LIBS).glob("libnvidia-ml*")):
        path.unlink()
    host.entries = [entry for entry in host.entries if "nvidia-ml" not in entry.name]
    plain = "int nvmlInit_v2(void) { return 9; } int nvmlNew(void) { return 8; }"
    host.install(host.parts.library("libnvidia-ml.so.1", plain, soname="libnvidia-ml.so.1"))

    shared = published(host, base).shared

    results = call(shared, "libnvidia-ml.so.1:nvmlInit_v2", "libnvidia-ml.so.1:nvmlNew")
    assert results["libnvidia-ml.so.1:nvmlInit_v2"] == 42
    assert results["libnvidia-ml.so.1:nvmlNew"] == 8


def test_a_library_cannot_place_a_link_outside_of_the_volume(
    host: FakeHost, base: Path, tmp_path: Path
) -> None:
    host.install(host.parts.library(f"libnvidia-cfg.so.{VERSION}", soname=f"{tmp_path}/escaped"))

    volumes = published(host, base)

    assert (volumes.whole / "lib64" / f"libnvidia-cfg.so.{VERSION}").exists()
    assert not (tmp_path / "escaped").is_symlink()


def test_a_driver_without_nvml_is_refused(host: FakeHost, base: Path) -> None:
    host.entries = [entry for entry in host.entries if "nvidia-ml" not in entry.name]
    host.write_cache()

    with pytest.raises(
        DriverNotFound, match=r"no 64-bit libnvidia-ml\.so of driver 555.58.02 among the volume's"
    ):
        published(host, base)
    assert not base.exists()


def test_a_volume_without_libcuda_is_refused(host: FakeHost, base: Path) -> None:
    config = replace(CONFIG, whole=replace(CONFIG.whole, libraries=("libnvidia-ml.so",)))

    with pytest.raises(InputError, match="volume 'origin' lists no library prefix that matches"):
        publish(config, root=host.root, shims=host.parts.shims(), base=base)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "cannot be read: No such file or directory; is it built?"),
        (b"", "not an ELF file; build it again"),
        (as_32_bit("libcuda.so.1"), "built for EM_386, but the driver is EM_"),
    ],
)
def test_an_unusable_shim_is_refused_before_anything_is_written(
    content: bytes | None, cause: str, host: FakeHost, base: Path, tmp_path: Path
) -> None:
    shim = tmp_path / "libcuda.so.1"
    if content is not None:
        shim.write_bytes(content)

    for role in ("cuda", "cuda_link"):
        with pytest.raises(ShimUnusable, match=re.escape(cause)):
            published(host, base, replace(host.parts.shims(), **{role: shim}))
    assert not base.exists()


def test_a_driver_that_vanishes_while_it_is_read_is_said_to(
    host: FakeHost, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_and_lose(root: Host, names: Sequence[str]) -> FoundLibrary:
        found = find_programs(root, names)
        for program in found.components:
            program.path.unlink()
        return found

    monkeypatch.setattr(manager, "find_programs", find_and_lose)

    with pytest.raises(DriverNotFound, match=r"files changed while they were read: .*nvidia-smi"):
        published(host, base)


def test_without_override_the_volumes_lie_where_the_configuration_says(
    host: FakeHost, tmp_path: Path
) -> None:
    config = replace(
        CONFIG,
        shared=replace(CONFIG.shared, base=tmp_path / "a"),
        whole=replace(CONFIG.whole, base=tmp_path / "b"),
    )

    volumes = publish(config, root=host.root, shims=host.parts.shims())

    assert (volumes.shared, volumes.whole) == (tmp_path / "a" / "nvidia", tmp_path / "b" / "origin")


def test_this_machines_own_root_is_read_without_trouble(parts: Parts, base: Path) -> None:
    """Whether or not it has a driver: published, or told so."""
    try:
        volumes = publish(CONFIG, root=Path("/"), shims=parts.shims(), base=base)
    except DriverNotFound as error:
        assert "libcuda.so" in error.cause  # noqa: PT017  (either outcome is right)
    else:
        assert (volumes.shared / "lib64" / "libcuda.so.1").exists()
