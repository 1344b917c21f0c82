"""Where the container runtime is looked for."""

from pathlib import Path

import pytest

from gpumanager.errors import InputError
from gpumanager.runtime.cri import KNOWN, candidates, parse_endpoint


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/var/run/dockershim.sock", "/var/run/dockershim.sock"),
        ("unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock"),
        ("unix:////var/run/docker.sock", "/var/run/docker.sock"),
    ],
)
def test_an_endpoint_is_a_path_with_or_without_its_scheme(text: str, path: str) -> None:
    assert parse_endpoint(text) == Path(path)


@pytest.mark.parametrize("text", ["", "tcp://127.0.0.1:1", "npipe:////./pipe/x", "run/x.sock"])
def test_any_other_endpoint_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--docker-endpoint"):
        parse_endpoint(text, "--docker-endpoint")


def test_an_endpoint_that_was_asked_for_is_the_only_one() -> None:
    asked, docker = Path("/a"), Path("/d")

    assert candidates(asked, docker) == (asked,)
    assert candidates(None, docker) == (docker, *KNOWN)
    assert candidates(None) == KNOWN


def test_docker_s_shims_are_asked_before_the_containerd_below_docker() -> None:
    order = [path.name for path in KNOWN]

    assert order.index("dockershim.sock") < order.index("containerd.sock")
    assert order.index("cri-dockerd.sock") < order.index("containerd.sock")
