"""The agent's flags: gpu-manager's names and ways, and clear words for what cannot be used."""

import asyncio
import os
import signal
from pathlib import Path

import pynvml
import pytest

from gpumanager.cli import agent, run
from gpumanager.settings import AgentSettings

VOLUME_CONF = Path(__file__).parents[3] / "volume.conf"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[AgentSettings]:
    """The settings the agent would have started with; it is not started."""
    seen: list[AgentSettings] = []

    async def remember(settings: AgentSettings) -> None:
        seen.append(settings)

    monkeypatch.setattr("gpumanager.agent.wiring.serve", remember)
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
        (["--wait-timeout=1m0s"], "wait_timeout", 60.0),
        (["--wait-timeout", "1h1.5m"], "wait_timeout", 3690.0),
        (["--runtime-request-timeout=500ms"], "runtime_request_timeout", 0.5),
        (["--driver=nvidia"], "volume_config", None),
        (["--container-runtime-endpoint=/r.sock"], "container_runtime_endpoint", "/r.sock"),
        (["--docker-endpoint", "unix:////d.sock"], "docker_endpoint", "unix:////d.sock"),
        (["--runtime-request-timeout=2s"], "runtime_request_timeout", 2.0),
        (["--hostname-override=n1", "--v=4"], "hostname_override", "n1"),
        (["-v=4", "--hostname-override", "ab=c"], "hostname_override", "ab=c"),
        (["--hostname-override="], "hostname_override", None),
        (["--hostname-override", ""], "hostname_override", None),
        (["--query-addr", ""], "query_addr", ""),  # every address of the host
        (["--kubeconfig=/k"], "kubeconfig", Path("/k")),
        (["--kubeconfig="], "kubeconfig", None),
        (["--kubeconfig=/k", "--incluster-mode=true"], "kubeconfig", None),
        (["--kubeconfig=/k", "--incluster-mode=false"], "kubeconfig", Path("/k")),
        (["--standalone"], "standalone", True),
        ([], "load_modules", "missing"),
        (["--load-modules=never"], "load_modules", "never"),
        ([], "cuda_compat", "shim"),
        (["--cuda-compat=image"], "cuda_compat", "image"),
        (["--compat32"], "compat32", True),
        (["--opencl-in-shares=true"], "opencl_in_shares", True),
        (["--node-labels=a.b/c=d, e=f,,h="], "node_labels", {"a.b/c": "d", "e": "f", "h": ""}),
        ([], "on_bypass", "report"),
        (["--on-bypass=end"], "on_bypass", "end"),
        ([], "gpu_policy", "binpack"),
        (["--gpu-policy="], "gpu_policy", "binpack"),
        (["--gpu-policy=Spread"], "gpu_policy", "spread"),
        (["--gpu-policy=least-fragmentation"], "gpu_policy", "least-waste"),
        (["--query-addr=0.0.0.0"], "query_addr", "0.0.0.0"),
        ([], "query_port", 5678),
        (["--query_port=9"], "query_port", 9),
        (["--sample-period=3"], "sample_period", 3.0),
        (["--device-plugin-path="], "device_plugin_path", Path("/var/lib/kubelet/device-plugins")),
        (["--cgroup-driver=systemd", "--share-mode"], "share_mode", True),
        (["--logtostderr", "--alsologtostderr=false", "--share-mode"], "share_mode", True),
        (["--log-flush-frequency=5s", "--share-mode"], "share_mode", True),
        (["--version=false", "--share-mode"], "share_mode", True),
    ],
)
def test_flags_are_read_as_gpu_manager_reads_them(
    started: list[AgentSettings], flags: list[str], name: str, value: object
) -> None:
    assert run(["agent", *flags]) == 0

    assert getattr(started[0], name) == value


def test_a_malformed_label_is_said_and_the_others_count(
    started: list[AgentSettings], caplog: pytest.LogCaptureFixture
) -> None:
    run(["agent", "--node-labels=a=b,nonsense,=c"])

    assert started[0].node_labels == {"a": "b"}
    assert "ignoring 'nonsense'" in caplog.text
    assert "ignoring '=c'" in caplog.text


@pytest.mark.parametrize("flag", ["--version", "--version=true", "--version=raw"])
def test_the_version_is_said_and_nothing_is_started(
    started: list[AgentSettings], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["agent", flag]) == 0

    said = capsys.readouterr().out
    assert said.startswith("gpumanager ")
    assert ("Python" in said) == (flag == "--version=raw")
    assert not started


def test_every_flag_of_the_original_and_of_its_klog_is_known() -> None:
    original = (
        "driver extra-config volume-config query-port query-addr kubeconfig sample-period "
        "node-labels hostname-override virtual-manager-path device-plugin-path checkpoint-path "
        "share-mode allocation-check-period container-runtime-endpoint cgroup-driver "
        "runtime-request-timeout wait-timeout version docker-endpoint standalone incluster-mode "
        "logtostderr alsologtostderr v stderrthreshold vmodule log-backtrace-at log-dir"
    )
    known = {name for param in agent.command.params for name in param.opts}

    assert {f"--{name}" for name in original.split()} <= known


def test_extra_devices_come_from_the_original_s_file(tmp_path: Path) -> None:
    config = tmp_path / "extra-config.json"
    config.write_text('{"default": {"devices": ["/dev/fuse"]}}')

    assert agent.read_extra_config(config) == ("/dev/fuse",)


def test_without_a_driver_it_says_what_to_do_and_waits_for_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def end(_: float) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(pynvml, "nvmlInit", _no_library)
    monkeypatch.setattr(asyncio, "sleep", end)

    assert run(["agent", "--load-modules=never", "--volume-config", str(VOLUME_CONF)]) == 0

    assert "install the NVIDIA driver" in caplog.text


def _no_library() -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
