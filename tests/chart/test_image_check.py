"""What `make image-check` decides without a container engine."""

import os
from pathlib import Path

import dockerfile
import pytest

from tests.chart import base_image, image_check, image_contents

TEXT = """\
# A comment.
ARG PYTHON=python:3.13-slim-bookworm
FROM ${PYTHON} AS built
USER nobody
FROM ${PYTHON}
ENV A=1 \\
    B="two words"
USER 65532:65532
ENTRYPOINT ["gpumanager"]
CMD ["--help"]
"""
SHIM = "opt/gpu-manager/vcuda_shim/lib/shim/libcuda.so.1"


def test_a_dockerfile_says_the_base_and_what_the_last_stage_says() -> None:
    said = dockerfile.read(TEXT)

    assert (said.python, said.debian) == ("3.13", "bookworm")
    assert said.config(path="/bin") == {
        "Entrypoint": ["gpumanager"],
        "Cmd": ["--help"],
        "User": "65532:65532",
        "Env": ["PATH=/bin", "A=1", "B=two words"],
    }


def test_the_dockerfile_can_be_read() -> None:
    said = dockerfile.read(dockerfile.FILE.read_text())

    assert said.user == "65532:65532"
    assert said.base.startswith("python:3.")


def test_a_file_that_no_pattern_names_is_found() -> None:
    names = ["opt/gpu-manager/gpumanager/secret.txt", "opt/gpu-manager/rich/any.txt"]

    assert image_contents.unlisted(names) == names[:1]


def test_a_pattern_that_nothing_meets_is_found() -> None:
    assert image_contents.unmet([SHIM], ["usr/*", SHIM]) == ["usr/*"]


def test_sources_and_keys_are_of_no_use_and_shims_are() -> None:
    names = ["opt/gpu-manager/a.h", "etc/tls.key", SHIM, *image_contents.CERTIFICATES]

    assert image_contents.of_no_use(names) == names[:2]


def test_the_whole_image_has_the_shims_of_both_machines() -> None:
    both = image_contents.with_both_machines((SHIM,))

    assert [one.split("/")[-2] for one in both] == ["shim", "shim-aarch64", "shim-x86_64"]


def test_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65532)

    assert image_check.obstacle(dockerfile.read(TEXT)) == "it needs root"


def test_a_python_of_another_version_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho /opt/some where 3.12\n")
    program.chmod(0o755)
    monkeypatch.setenv(base_image.VARIABLE, str(program))

    assert base_image.python(dockerfile.read(TEXT)) is None
    assert base_image.python(dockerfile.read(TEXT.replace("3.13", "3.12"))) == Path(
        "/opt/some where"
    )


@pytest.mark.parametrize(("required", "status"), [(False, 0), (True, 1)])
def test_where_it_cannot_be_done_that_is_said_aloud(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    required: bool,
    status: int,
) -> None:
    monkeypatch.setattr(image_check, "obstacle", lambda _: "it needs root")
    monkeypatch.delenv("GPUMANAGER_IMAGE_REQUIRED", raising=False)
    if required:
        monkeypatch.setenv("GPUMANAGER_IMAGE_REQUIRED", "1")

    assert image_check.main() == status
    assert "SKIPPED" in capsys.readouterr().err
