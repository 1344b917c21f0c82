"""`gpumanager doctor --bundle`: what others need, nothing that is secret, within bounded time."""

import io
import json
import tarfile
import threading
from pathlib import Path

import pytest

from gpumanager.cli import run
from gpumanager.cli.logs import FILE
from gpumanager.cli.support import bundle
from gpumanager.cli.support.bundle import Source, collect
from gpumanager.doctor.checks import CHECKS
from gpumanager.doctor.claim_checks import CLAIM_CHECKS
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant, Share
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import JournalFile
from gpumanager.ids import AllocationID, PodUID
from tests.cli.commands import flags_of

SECRET = "hunter2-the-secret"


def doctor(directory: Path, to: object) -> int:
    flags = ("--kubelet-token", directory / "token", "--log-dir", directory / "logs")
    words = (*flags, "--query-port", 1, "--bundle", to)
    return run(["doctor", *flags_of(directory), *map(str, words)])


def unpacked(content: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name.partition("/")[2]: f.read().decode() for name, f in files.items() if f}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node with a secret in every place that a bundle looks at."""
    for name in ("kubelet", "checkpoint", "logs", "vm", "root/var/log/pods/gm_gpu-manager-x_u/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "kubeconfig").write_text(f"users:\n- user:\n    token: {SECRET}\n")
    answer = {"PodUID": "uid-1", "ContainerName": "c", "ResourceName": "r", "AllocResp": SECRET}
    entries = [{**answer, "DeviceIDs": {"0": ["d"]}}]
    checkpoint = {"Data": {"PodDeviceEntries": entries}, "Checksum": 1}
    (tmp_path / "kubelet/kubelet_internal_checkpoint").write_text(json.dumps(checkpoint))
    (tmp_path / "logs" / FILE).write_text(f"own log\nAuthorization: Bearer {SECRET}\n")
    log = tmp_path / "root/var/log/pods/gm_gpu-manager-x_u/a/0.log"
    log.write_text(f"stderr F API_TOKEN={SECRET} was read\nhello from the agent\n")
    who = Claimant(PodUID("uid-1"), "team", "train-0", "main")
    held = Grant(
        AllocationID("a1"),
        DevicePluginSource("admission", ("c-0",), ("m-0",)),
        {GpuUUID("GPU-0"): Share(1, 1)},
        candidate=who,
    )
    JournalFile(tmp_path / "checkpoint/allocations.json").save(Journal({held.id: held}))
    return tmp_path


def test_nothing_secret_is_in_it_what_helps_is_and_what_is_missing_is_named(
    node: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PASSWORD", SECRET)
    to = node / "bundle.tar.gz"

    assert doctor(node, to) == 0

    files = unpacked(to.read_bytes())
    assert [name for name, text in files.items() if SECRET in text] == []
    assert "uid-1" in files["kubelet-checkpoint.json"]
    assert "train-0" in files["journal.txt"]
    assert "hello from the agent" in files["logs/containers.txt"]
    assert "own log" in files[f"logs/{FILE}"]
    assert "fs.inotify.max_user_instances" in files["system/sysctl.txt"]
    assert "gpumanager" in files["versions.json"]
    assert json.loads(files["doctor.json"])["findings"]
    inputs = json.loads(files["inputs.json"])
    assert inputs["granted"] == 1
    ours = [one for one in CHECKS if one not in CLAIM_CHECKS]
    assert inputs.keys() >= {name for one in ours for name in one.names}
    assert to.stat().st_mode & 0o777 == 0o600
    said = json.loads(files["manifest.json"])
    missing = {one["name"]: one["cause"] for one in said["missing"]}
    assert {one["name"] for one in said["files"]} == files.keys() - {"manifest.json"}
    assert missing["agent/metrics.txt"] == "Connection refused"
    assert "ld.so.cache" in missing["gpu/driver-files.txt"]
    assert all(one["cause"] and one["origin"] for one in said["missing"])
    told = capsys.readouterr()
    assert told.out == ""
    assert "Read it before you give it away." in told.err


def test_it_goes_to_standard_output_where_that_is_asked_for(
    node: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert doctor(node, "-") == 0

    assert "manifest.json" in unpacked(capfdbinary.readouterr().out)


def test_a_place_that_cannot_be_written_is_told_in_one_line(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(node, node / "no/such/x.tar.gz") == 1

    *_, last = capsys.readouterr().err.splitlines()
    assert "cannot write the bundle: No such file or directory" in last
    assert not list(node.glob("**/.bundle-*"))


def test_a_source_that_hangs_costs_itself_alone() -> None:
    never = threading.Event()
    wanted = [
        Source("hangs", "x", lambda: str(never.wait(120))),
        Source("works", "y", lambda: "text"),
    ]
    told: list[str] = []

    hangs, works = collect(wanted, told.append, seconds=0.5)

    never.set()
    assert hangs.cause == "no answer within 0.5 s"
    assert works.text == b"text"
    assert told[-1] == "works: 4 bytes"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("no-such-program",), "there is no no-such-program here"),
        (("sh", "-c", "echo no driver >&2; exit 9"), "exit status 9: no driver"),
        (("sleep", "60"), r"no answer within 0\.2 s"),
    ],
)
def test_a_program_that_fails_or_hangs_is_a_reason(
    words: tuple[str, ...], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "COMMAND_SECONDS", 0.2 if "sleep" in words else 60.0)

    with pytest.raises(ValueError, match=cause):
        bundle.output(words)
