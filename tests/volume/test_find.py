"""Finding the driver on a host: through links, past strangers, the right one of several."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpumanager.volume.driver import find_driver
from gpumanager.volume.errors import DriverNotFound, LdCacheUnreadable
from gpumanager.volume.find import find_libraries, find_programs
from gpumanager.volume.host import read_host, resolve
from gpumanager.volume.ldcache import LdEntry
from tests.volume.driver_host import LIBS, LIBS32, NATIVE, OLDER, VERSION, FakeHost
from tests.volume.elf_variants import as_32_bit, with_abi_note

pytest_plugins = ["tests.volume.volume_fixtures"]


def names(host: FakeHost, *prefixes: str) -> list[str]:
    return [c.name for c in find_libraries(read_host(host.root), prefixes).components]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/a/file", "a/file"),
        ("/relative", "a/file"),
        ("/absolute", "a/file"),
        ("/a/up", "a/file"),
        ("/out", "a/file"),
        ("/through/file", "a/file"),
        ("/../../a/./file", "a/file"),
        ("/dangling", None),
        ("/circle", None),
        ("/a/file/below", None),
        ("/" + "x" * 300, None),
    ],
)
def test_links_are_followed_inside_the_root(path: str, found: str | None, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    for link, target in {
        "relative": "a/file",
        "absolute": "/a/file",
        "a/up": "../a/file",
        "out": "../../../a/file",
        "through": "/a",
        "dangling": "/a/nothing",
        "circle": "circle",
    }.items():
        (tmp_path / link).symlink_to(target)

    assert resolve(tmp_path, path) == (tmp_path / found if found else None)


def test_libraries_are_found_by_prefix_and_each_file_once(host: FakeHost) -> None:
    host.install_driver()
    host.install(host.parts.library("libcudart.so.12", soname="libcudart.so.12"))

    assert names(host, "libcuda.so", "libnvidia-ml") == [
        f"libnvidia-ml.so.{VERSION}",
        f"libcuda.so.{VERSION}",
    ]


def test_links_that_lead_nowhere_are_passed_over_and_linker_scripts_with_a_warning(
    host: FakeHost,
) -> None:
    host.install_driver()
    script = host.path(LIBS) / "libnvidia-cfg.so"
    script.write_text("INPUT(libnvidia-cfg.so.1)")
    (host.path(LIBS) / "libnvidia-cfg.so.1").symlink_to("libnvidia-cfg.so.gone")
    for name in ("libnvidia-cfg.so", "libnvidia-cfg.so.1"):
        host.entries.append(LdEntry(name, f"{LIBS}/{name}", NATIVE))
    host.write_cache()

    found = find_libraries(read_host(host.root), ["libnvidia-cfg"])

    assert found.components == ()
    assert found.warnings == (f"{script} is left out: not an ELF file",)


def test_a_gl_front_end_counts_only_if_it_leads_to_nvidias(host: FakeHost) -> None:
    behind = host.parts.library("libGLdispatch.so.0", soname="libGLdispatch.so.0")
    linked = ("-Wl,--no-as-needed", str(behind))
    host.install(host.parts.library("libGL.so.1.7.0", "", *linked, soname="libGL.so.1"))
    host.install(host.parts.library("libEGL.so.1.1.0", soname="libEGL.so.1"))

    assert names(host, "libGL.so", "libEGL.so") == ["libGL.so.1.7.0"]


def test_of_libnvidia_tls_the_one_for_todays_kernels_is_taken(host: FakeHost) -> None:
    host.install(with_abi_note(host.parts, "libnvidia-tls.so.1", (2, 3, 99)))
    host.install(with_abi_note(host.parts, "libnvidia-tls.so.2", (2, 2, 5)))
    host.install(host.parts.library("libnvidia-tls.so.3"))

    assert names(host, "libnvidia-tls") == ["libnvidia-tls.so.3", "libnvidia-tls.so.1"]


def test_programs_are_found_on_the_path_of_the_host_not_ours(host: FakeHost) -> None:
    real = host.put_program("nvidia-smi")
    (host.path("/usr/local/bin") / "nvidia-smi").symlink_to("/usr/bin/nvidia-smi")
    host.put_program("nvidia-debugdump").chmod(0o644)

    found = find_programs(read_host(host.root), ["nvidia-smi", "nvidia-debugdump", "sh"])

    assert [(program.name, program.path) for program in found.components] == [("nvidia-smi", real)]


def test_a_wrapper_script_is_left_out_with_a_warning(host: FakeHost) -> None:
    script = host.put_program("nvidia-smi", b"#!/bin/sh\n")

    found = find_programs(read_host(host.root), ["nvidia-smi"])

    assert found.components == ()
    assert found.warnings == (f"{script} is left out: not an ELF file",)


@pytest.mark.parametrize("version", [VERSION, OLDER])
def test_of_several_drivers_the_one_behind_the_soname_counts(host: FakeHost, version: str) -> None:
    for each in (VERSION, OLDER):
        host.install(host.parts.cuda(each))
    (host.path(LIBS) / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    host.entries.append(LdEntry("libcuda.so.1", f"{LIBS}/libcuda.so.1", NATIVE))
    host.write_cache()

    driver = find_driver(read_host(host.root))

    assert driver.version == version
    assert driver.others == {VERSION, OLDER} - {version}
    assert driver.warnings[0].startswith(f"several drivers are installed: {version} is used")


def test_without_a_soname_link_the_newest_driver_counts(host: FakeHost) -> None:
    for version in ("99.5", OLDER, VERSION):
        host.install(host.parts.cuda(version))

    assert find_driver(read_host(host.root)).version == VERSION


def test_the_toolkits_stub_is_no_driver(host: FakeHost) -> None:
    stub = host.parts.library("libcuda.so", soname="libcuda.so.1")
    host.install(stub, ("libcuda.so.1",), where="/usr/local/cuda/lib64/stubs")

    with pytest.raises(DriverNotFound, match=r"names no 64-bit libcuda\.so"):
        find_driver(read_host(host.root))

    host.install_driver()
    driver = find_driver(read_host(host.root))
    assert (driver.version, driver.warnings) == (VERSION, ())


def test_a_driver_whose_own_calls_can_be_interposed_is_warned_of(host: FakeHost) -> None:
    host.install(host.parts.library("libcuda.so.570.1", soname="libcuda.so.1"))

    (warning,) = find_driver(read_host(host.root)).warnings

    assert "not linked -Bsymbolic" in warning


def only_32_bit(host: FakeHost) -> None:
    library = host.parts.folder / "32-bit" / f"libcuda.so.{VERSION}"
    library.parent.mkdir(exist_ok=True)
    library.write_bytes(as_32_bit("libcuda.so.1"))
    host.install(library, ("libcuda.so.1",), where=LIBS32)


def without_version(host: FakeHost) -> None:
    host.install(host.parts.library("libcuda.so.1", soname="libcuda.so.1"))


@pytest.mark.parametrize(
    ("install", "cause"),
    [
        (lambda _: None, r"install the driver, run ldconfig there, or name"),
        (only_32_bit, r"names no 64-bit libcuda\.so"),
        (without_version, r"libcuda\.so\.1 has no driver version in its name"),
    ],
    ids=["nothing", "a 32-bit driver", "no version in the name"],
)
def test_a_host_without_a_driver_for_containers_is_told_why(
    host: FakeHost, install: Callable[[FakeHost], None], cause: str
) -> None:
    install(host)

    with pytest.raises(DriverNotFound, match=cause):
        find_driver(read_host(host.root))


def test_a_root_without_cache_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LdCacheUnreadable, match=f"{tmp_path}/etc/ld.so.cache: not found"):
        read_host(tmp_path)
