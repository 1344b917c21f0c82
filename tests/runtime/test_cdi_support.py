"""Whether a runtime injects CDI devices, by what it says of itself."""

import json
from pathlib import Path

import pytest

from gpumanager.runtime.cdi_support import judge_cdi
from gpumanager.runtime.cri import RuntimeVersion

HERE = Path("/var/run/cdi")


def judged(name: str, version: str, **config: object) -> str:
    known = RuntimeVersion(name, version, "v1", Path("/run/cri.sock"))
    return judge_cdi(known, json.dumps(config) if config else "", HERE)


@pytest.mark.parametrize(
    ("name", "version", "config"),
    [
        ("containerd", "2.1.9", {}),
        ("containerd", "v2.0.0", {}),
        ("containerd", "2.1.9", {"enableCDI": True, "cdiSpecDirs": ["/etc/cdi", "/var/run/cdi"]}),
        ("containerd", "2.1.9", {"enableCDI": True, "cdiSpecDirs": ["/run/cdi/"]}),
        ("containerd", "1.7.24~ds1", {"enableCDI": True}),
        ("cri-o", "1.31.0", {}),
        ("cri-o", "1.28.0", {}),
    ],
)
def test_a_runtime_with_cdi_is_taken(name: str, version: str, config: dict[str, object]) -> None:
    assert judged(name, version, **config) == ""


@pytest.mark.parametrize(
    ("name", "version", "config", "said"),
    [
        ("containerd", "1.6.20", {}, "knows nothing"),
        ("containerd", "1.6.20", {"enableCDI": True}, "knows nothing"),
        ("containerd", "1.7.24", {}, "as it is configured"),
        ("containerd", "1.7.24", {"enableCDI": False}, "as it is configured"),
        ("containerd", "1.7.24", {"enableCDI": "yes"}, "as it is configured"),
        ("containerd", "2.1.9", {"enableCDI": False}, "as it is configured"),
        ("containerd", "2.1.9", {"enableCDI": True, "cdiSpecDirs": ["/etc/cdi"]}, "/var/run/cdi"),
        ("containerd", "devel", {}, "knows nothing"),
        ("cri-o", "1.27.3", {}, "knows nothing"),
        ("docker", "27.0.3", {}, "is not known"),
        ("", "", {}, "is not known"),
    ],
)
def test_a_runtime_without_cdi_is_refused(
    name: str, version: str, config: dict[str, object], said: str
) -> None:
    assert said in judged(name, version, **config)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "7"])
def test_a_configuration_that_says_nothing_leaves_it_to_the_version(text: str) -> None:
    modern = RuntimeVersion("containerd", "2.1.9", "v1", Path("/run/cri.sock"))
    older = RuntimeVersion("containerd", "1.7.24", "v1", Path("/run/cri.sock"))

    assert judge_cdi(modern, text, HERE) == ""
    assert judge_cdi(older, text, HERE) != ""
