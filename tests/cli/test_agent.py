"""The agent's flags: gpu-manager's names and ways, and clear words for what cannot be used."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpumanager.cli import agent, node_agent, run
from gpumanager.settings import AgentSettings

VOLUME_CONF = Path(__file__).parents[2] / "volume.conf"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[AgentSettings]:
    """The settings the agent would have started with; it is not started."""
    seen: list[AgentSettings] = []

    async def remember(settings: AgentSettings) -> None:
        seen.append(settings)

    monkeypatch.setattr(node_agent, "serve", remember)
    return seen


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        ([], "share_mode", False),
        (["--share-mode"], "share_mode", True),
        (["--share-mode=true"], "share_mode", True),
        (["--share_mode=false"], "share_mode", False),
        (["--share-mode", "--query-port", "0"], "share_mode", True),
        (["--device_plugin_path=/d"], "device_plugin_path", Path("/d")),
        (["--virtual-manager-path", "/v"], "virtual_manager_path", Path("/v")),
        (["--allocation-check-period=30"], "allocation_check_period", 30.0),
        (["--wait-timeout=1m"], "wait_timeout", 60.0),
        (["--wait-timeout=5s"], "wait_timeout", 5.0),
        (["--driver=nvidia"], "volume_config", None),
        (["--container-runtime-endpoint=/r.sock"], "container_runtime_endpoint", "/r.sock"),
        (["--docker-endpoint", "unix:////d.sock"], "docker_endpoint", "unix:////d.sock"),
        (["--runtime-request-timeout=2s"], "runtime_request_timeout", 2.0),
        (["--hostname-override=n1", "--v=4"], "hostname_override", "n1"),
        (["--query-addr=0.0.0.0"], "query_addr", "0.0.0.0"),
        ([], "query_addr", "localhost"),
        (["--query-port", "1234"], "query_port", 1234),
        ([], "query_port", 5678),
        (["--sample-period=2"], "sample_period", 2.0),
        (["--behind-the-shim=end"], "behind_the_shim", "end"),
    ],
)
def test_flags_are_read_as_gpu_manager_reads_them(
    started: list[AgentSettings], flags: list[str], name: str, value: object
) -> None:
    assert run(["agent", *flags]) == 0

    assert getattr(started[0], name) == value


def test_a_flag_without_effect_says_so(
    started: list[AgentSettings], caplog: pytest.LogCaptureFixture
) -> None:
    run(["agent", "--cgroup-driver=systemd"])

    assert started
    assert "--cgroup-driver has no effect" in caplog.text


def test_extra_devices_come_from_the_original_s_file(tmp_path: Path) -> None:
    config = tmp_path / "extra-config.json"
    config.write_text('{"default": {"devices": ["/dev/fuse"]}}')

    assert agent.read_extra_config(config) == ("/dev/fuse",)


BROKEN = {
    "empty": ("--volume-config", ""),
    "not JSON": ("--volume-config", "{"),
    "a list": ("--volume-config", "[]"),
    "volumes of the wrong type": ("--volume-config", '{"volume": 3}'),
    "nested too deeply": ("--volume-config", "[" * 100_000),
    "too long": ("--volume-config", " " * (2 << 20)),
    "extra: nested too deeply": ("--extra-config", "[" * 100_000),
    "extra: too long": ("--extra-config", " " * (2 << 20)),
    "extra: empty": ("--extra-config", ""),
    "extra: a list": ("--extra-config", "[]"),
    "extra: devices of the wrong type": ("--extra-config", '{"default": {"devices": "x"}}'),
}


@pytest.mark.parametrize(("flag", "content"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_status_2_and_one_line_that_names_it(
    flag: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)

    assert run(["agent", flag, str(path)]) == 2

    said = capsys.readouterr().err
    assert said.startswith(f"gpumanager: {path}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--driver=amd"],
        ["--share-mode=maybe"],
        ["--wait-timeout=soon"],
        ["--wait-timeout=-1"],
        ["--wait-timeout=inf"],
        ["--kubelet-endpoint=nowhere"],
        ["--volume-config=/nonexistent/volume.conf"],
        ["left over"],
    ],
)
def test_bad_flags_are_status_2_and_one_line(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["agent", *flags]) == 2

    assert capsys.readouterr().err.count("\n") == 1


def test_without_a_driver_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def inline(call: Any, *arguments: Any) -> Any:
        return call(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", inline)
    monkeypatch.setattr("gpumanager.gpu.nvml.pynvml.nvmlInit", _no_library)

    assert run(["agent", "--volume-config", str(VOLUME_CONF)]) == 1

    assert "install the NVIDIA driver" in capsys.readouterr().err


def _no_library() -> None:
    import pynvml

    raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
