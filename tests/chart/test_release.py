"""What `make release` makes, as far as it needs no network: archives, bills, chart, digests."""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import base
import image
import oci
import pytest
import release
import sbom

from tests.chart import helm_program
from vcuda_shim import SHIM_CUDA

EPOCH = 1_700_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file that may be run, a second name of it, and a link."""
    made = tmp_path / "folder"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "one").write_text("#!/bin/sh\n")
    (made / "bin" / "one").chmod(0o755)
    os.link(made / "bin" / "one", made / "bin" / "two")
    (made / "sh").symlink_to("bin/one")
    return made


def archived(folder: Path, out: Path) -> dict[str, bytes]:
    """The files of an archive with an image for both architectures."""
    made = oci.Archive("example.com/one:1", EPOCH, {"User": "65532:65532"})
    for architecture in image.ARCHITECTURES:
        made.add(architecture, (folder,))
    made.write(out)
    with tarfile.open(out) as tar:
        return {one.name: extracted(tar, one) for one in tar}


def extracted(tar: tarfile.TarFile, one: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(one)
    assert file is not None
    return file.read()


def blob(files: dict[str, bytes], described: dict[str, Any]) -> bytes:
    content = files[f"blobs/{described['digest'].replace(':', '/')}"]
    assert len(content) == described["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == described["digest"]
    return content


def test_an_archive_leads_from_its_index_to_the_files_of_each_image(
    folder: Path, tmp_path: Path
) -> None:
    files = archived(folder, tmp_path / "image.tar")

    (top,) = json.loads(files["index.json"])["manifests"]
    assert top["annotations"]["io.containerd.image.name"] == "example.com/one:1"
    images = json.loads(blob(files, top))["manifests"]
    assert [one["platform"]["architecture"] for one in images] == ["amd64", "arm64"]
    for one in images:
        manifest = json.loads(blob(files, one))
        config = json.loads(blob(files, manifest["config"]))
        assert config["config"] == {"User": "65532:65532"}
        assert config["architecture"] == one["platform"]["architecture"]
        (layer,) = (gzip.decompress(blob(files, layer)) for layer in manifest["layers"])
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            assert {one.name: (one.mode, one.uid, one.size, one.linkname) for one in tar} == {
                "bin": (0o755, 0, 0, ""),
                "bin/one": (0o755, 0, 10, ""),
                "bin/two": (0o755, 0, 10, ""),
                "sh": (0o777, 0, 0, "bin/one"),
            }


def test_the_same_files_make_the_same_archive(folder: Path, tmp_path: Path) -> None:
    archived(folder, tmp_path / "one.tar")
    os.utime(folder / "bin" / "one", (0, 0))
    archived(folder, tmp_path / "two.tar")

    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_a_bill_names_every_package_once(tmp_path: Path) -> None:
    for name, more in {"grpcio": "License: Apache-2.0\n", "gpu_manager": ""}.items():
        place = tmp_path / f"{name}-1.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Name: {name.replace('_', '-')}\nVersion: 1\n{more}\n")
    libc = base.Package("libc6", "2.36-9+deb12u10", "arm64")

    text = sbom.described(
        tmp_path, [libc], image="gpu-manager:1", digest="sha256:ab", epoch=EPOCH, release="bookworm"
    )

    bill = json.loads(text)
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": "ab"}]
    assert [one["purl"] for one in bill["components"]] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=arm64&distro=bookworm",
        "pkg:generic/gpu-manager@1",
        "pkg:pypi/grpcio@1",
    ]
    assert bill["components"][2]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    (all_of_it,) = bill["dependencies"]
    assert all_of_it["dependsOn"] == [one["bom-ref"] for one in bill["components"]]


def test_the_packed_chart_is_the_chart(tmp_path: Path) -> None:
    packed = release.build_chart(tmp_path)

    assert re.fullmatch(r"gpu-manager-\d+\.\d+\.\d+(-[a-z0-9.]+)?\.tgz", packed.name)
    with tarfile.open(packed) as tar:
        found = {one.name: extracted(tar, one) for one in tar if one.isfile()}
    there = (path for path in release.CHART.rglob("*") if path.is_file())
    assert found == {
        f"gpu-manager/{one.relative_to(release.CHART)}": one.read_bytes() for one in there
    }


@pytest.mark.skipif(helm_program.found() is None, reason=helm_program.MISSING)
def test_helm_renders_the_packed_chart_as_the_chart(tmp_path: Path) -> None:
    packed = release.build_chart(tmp_path)

    def rendered(chart: object) -> str:
        cluster = ("--kube-version", helm_program.KUBERNETES)
        none = ("--set", "extender.tls.source=none")  # helm makes certificates at random
        done = helm_program.helm("template", "gpu-manager", chart, *cluster, *none)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert rendered(packed) == rendered(release.CHART)


def test_what_was_made_can_be_checked_by_its_digests(tmp_path: Path) -> None:
    (tmp_path / "one.tgz").write_bytes(b"one")
    release.write_sums(tmp_path)
    check = ["sha256sum", "--check", "--strict", "--quiet", release.SUMS]

    assert subprocess.run(check, check=False, cwd=tmp_path).returncode == 0
    (tmp_path / "one.tgz").write_bytes(b"two")
    assert subprocess.run(check, check=False, cwd=tmp_path, capture_output=True).returncode == 1


def test_what_has_no_base_is_said_and_the_rest_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(EPOCH))

    missing = release.build(tmp_path / "dist", ("chart", "image"), ("amd64",))

    assert missing == ["no image: it needs apt-get, which Debian and what descends from it have"]
    names = sorted(path.suffix for path in (tmp_path / "dist").iterdir())
    assert names == ["", ".tgz"]


def test_a_library_that_the_base_lacks_is_found(tmp_path: Path) -> None:
    files, root = tmp_path / "files", tmp_path / "root"
    for folder in (files, root):
        folder.mkdir()
    shutil.copy(SHIM_CUDA, files)
    (needed,) = (one for one in release.needed_by(SHIM_CUDA) if one.startswith("libvcuda-"))

    assert needed == "libvcuda-real.so.1"
    assert "libc.so.6" in release.missing_libraries(root, files)
    for name in release.missing_libraries(root, files):
        (root / name).touch()
    assert release.missing_libraries(root, files) == []


def test_documents_and_languages_are_left_out_of_the_base_and_licences_stay(tmp_path: Path) -> None:
    files = ("usr/share/doc/one/copyright", "usr/share/doc/one/changelog", "usr/share/man/one.1")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for name in ("usr/bin", "bin"):
        (tmp_path / name).mkdir()

    base.finish(tmp_path)

    assert [name for name in files if (tmp_path / name).exists()] == [files[0]]
    assert not (tmp_path / "usr/share/man").exists()
    assert str((tmp_path / "usr/bin/python3").readlink()) == base.PYTHON


@pytest.mark.parametrize("architecture", image.ARCHITECTURES)
def test_pip_is_told_of_another_machine_alone(architecture: str) -> None:
    machine = image.ARCHITECTURES[architecture]

    words = image.wheels_for(machine)

    assert bool(words) == (machine != os.uname().machine)
    assert not words or f"manylinux_2_17_{machine}" in words
