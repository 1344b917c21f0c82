"""What no command can use is refused with status 2 and one line on stderr that says what it is."""

import shlex
import socket
from pathlib import Path

import pytest

from gpumanager.cli import run
from tests.cli.commands import POD_TEXT, SIX

PLAN = "plan --topology six.txt --request 100"
FILES = {
    "pod.yaml": POD_TEXT,
    "broken.yaml": "a: [",
    "broken.json": "{",
    "empty": "",
    "list.json": "[]",
    "deep.json": "[" * 100_000,
    "long.json": " " * (2 << 20),
    "volume.json": '{"volume": 3}',
    "devices.json": '{"default": {"devices": "x"}}',
    "six.txt": SIX,
    "asymmetric.txt": SIX.replace("GPU1 PIX", "GPU1 PHB"),
}

BAD = (
    ("nope", "No such command 'nope'"),
    ("simulat", "Did you mean 'simulate'? See gpumanager --help."),
    ("--nope", "No such option '--nope'"),
    ("''", "No such command ''"),
    ("agent --driver=amd", "agent: Invalid value for '--driver': 'amd' is not 'nvidia'"),
    ("agent --cgroup-driver=cgroups", "'cgroups' is not one of 'cgroupfs', 'systemd'"),
    ("agent --query-port=70000", "70000 is not in the range 0<=x<=65535"),
    ("agent --sample-period=0", "'--sample-period': '0' is not a time; write for example 30s"),
    ("agent --vmodule=cri", "--vmodule: 'cri': write for example cri=4,listener*=4"),
    ("agent --stderrthreshold=LOUD", "'LOUD' is none of INFO, WARNING, ERROR, FATAL"),
    ("agent --log-dir=/proc/none", "/proc/none: cannot write a log there: No such file"),
    ("agent --share-mode=maybe", "'maybe' is not a valid boolean"),
    ("agent --wait-timeout=soon", "'soon' is not a time"),
    ("agent --wait-timeout='1m 30'", "'1m 30' is not a time"),
    ("agent --kubelet-endpoint=nowhere", "nowhere: is not a kubelet endpoint; write http(s)://HOST"),
    ("agent 'left over'", "unexpected extra argument (left over)"),
    ("agent --volume-config=/nonexistent/volume.conf", "/nonexistent/volume.conf: cannot be read"),
    ("agent --volume-config=empty", "empty:1: not JSON"),
    ("agent --volume-config=broken.json", "broken.json:1: not JSON"),
    ("agent --volume-config=list.json", "list.json: the file: expected an object"),
    ("agent --volume-config=volume.json", "volume.json: volume: expected a list"),
    ("agent --volume-config=deep.json", "deep.json: not a configuration: nested too deeply"),
    ("agent --volume-config=long.json", "long.json: longer than 1 MiB"),
    ("agent --extra-config=empty", "empty:1: not JSON"),
    ("agent --extra-config=list.json", 'list.json: write {"default": {"devices":'),
    ("agent --extra-config=devices.json", 'devices.json: write {"default": {"devices":'),
    ("agent --extra-config=deep.json", "deep.json: not a configuration: nested too deeply"),
    ("agent --extra-config=long.json", "long.json: longer than 1 MiB"),
    ("doctor --kubelet-endpoint=ftp://here", "not a kubelet endpoint"),
    ("explain", "Missing argument '[claim] [NAMESPACE/]NAME'"),
    ("explain a/b --extender http://127.0.0.1:1", "cannot ask the extender: Connection refused"),
    ("extender --address nowhere", "write HOST:PORT"),
    ("extender --address :99999", "write HOST:PORT"),
    ("extender --tls-cert-file x", "needs --tls-private-key-file"),
    ("extender --client-ca-file x", "needs --tls-cert-file"),
    ("extender --tls-cert-file no --tls-private-key-file none", "no certificate"),
    ("extender --max-request-mib 0", "--max-request-mib"),
    ("extender --kubeconfig no-such-file", "no-such-file"),
    ("extender --policy bestest", "--policy: 'bestest' is not a policy: write one of least-waste"),
    ("extender --policy binpack=strict", "only topology and numa can"),
    ("extender --gpu-policy numa", "--gpu-policy: 'numa' is not a policy for GPUs"),
    ("extender --quota-configmap gpuquota", "write NAMESPACE/NAME"),
    ("plan --topology six.txt", "--request"),
    ("plan --topology absent --request 1", "absent: cannot be read: No such file or directory"),
    ("plan --topology asymmetric.txt --request 1", "asymmetric.txt:3: "),
    ("plan --topology '\x1b[2Jno' --request 1", "gpumanager: [2Jno: cannot be read"),
    (f"{PLAN} --nope", "Did you mean '--occupied'? See gpumanager plan --help."),
    ("plan --topology six.txt --request abc", "--request abc: expected CORES or CORES:BLOCKS"),
    ("plan --topology six.txt --request=-5", "--request -5: expected CORES"),
    ("plan --topology six.txt --request 30:", "--request 30:: expected CORES"),
    ("plan --topology six.txt --request 1e9", "--request 1e9: expected CORES"),
    ("plan --topology six.txt --request ٣٠", "expected CORES"),
    (f"plan --topology six.txt --request {'9' * 5000}", "expected CORES"),
    (f"{PLAN} --occupied 6=10", "no GPU 6: the topology has 6 GPUs"),
    (f"{PLAN} --occupied 50", "expected GPU=CORES"),
    (f"{PLAN} --occupied 1=2=3", "expected GPU=CORES"),
    (f"{PLAN} --occupied 1=0:4", "1 to 100 of a GPU"),
    (f"{PLAN} --occupied 1=200", "1 to 100 of a GPU"),
    (f"{PLAN} --occupied 1=60 --occupied 1=60", "GPU 1 has only 40 cores left"),
    (f"{PLAN} --occupied 1=100 --occupied 1=1", "GPU 1 has only 0 cores left"),
    (f"{PLAN} --occupied 1=1 --occupied 1=100", "GPU 1 has only 99 cores left"),
    (f"{PLAN} --occupied 1=10:65", "GPU 1 has only 64 blocks left"),
    (f"{PLAN} --memory 16GB", "--memory: '16GB' is not a size"),
    (f"{PLAN} --memory 16", "less than one memory block"),
    ("replay", "give a trace with --pods and --nodes"),
    ("replay --pods none.csv", "give a trace with --pods and --nodes"),
    ("replay --pods none.csv --nodes none.csv", "none.csv: No such file"),
    ("replay --synthetic mixed --pods x.csv", "--synthetic makes up a trace"),
    ("replay --synthetic unheard", "'unheard' is not one of"),
    ("replay --synthetic mixed --policy best", "'best' is not one of"),
    ("replay --synthetic mixed --seed x", "'x' is not a valid integer"),
    ("replay --synthetic mixed --load 0", "0"),
    ("replay --synthetic mixed --load nan", "nan"),
    ("replay --synthetic mixed --load inf", "inf"),
    ("replay --synthetic mixed --load=-1", "-1"),
    ("simulate", "gpumanager simulate --machine t4x4 examples/half-a-gpu.yaml"),
    ("simulate --machine dgx pod.yaml", "--machine: no machine 'dgx': known are dgx-a100"),
    ("simulate --machine none.yaml pod.yaml", "none.yaml: cannot be read: No such file"),
    ("simulate none.yaml", "none.yaml: cannot be read: No such file"),
    ("simulate --cuda-version 13 pod.yaml", "--cuda-version: expected for example 13.4, found"),
    ("simulate --seed x pod.yaml", "'x' is not a valid integer range"),
    ("simulate --seed=-1 pod.yaml", "-1 is not in the range"),
    ("simulate --timeout nan pod.yaml",
     "'nan' is not a time; write for example 30s. See gpumanager simulate --help."),
    ("simulate --what pod.yaml", "No such option '--what'"),
    ("simulate broken.yaml", "broken.yaml:1: not YAML"),
    ("simulate empty", "empty: no pod in it"),
    ("simulate pod.yaml pod.yaml", "a second pod default/one"),
    ("top --agent localhost:5678", "write http://HOST:PORT"),
    ("top --agent ftp://x", "write http://HOST:PORT"),
    ("top --agent http://", "write http://HOST:PORT"),
    ("top --agent http://x:99999999", "write http://HOST:PORT"),
    ("tree --topology /no/such/file", "cannot be read"),
    ("tree --topology six.txt --memory x", "--memory"),
    ("webhook --tls-cert-file=a", "give both, or none"),
    ("webhook --tls-cert-file=a --tls-key-file=b --plain-http", "at most one of them"),
    ("webhook --service=x", "NAMESPACE/NAME"),
    ("webhook --secret=a/b/c", "NAMESPACE/NAME"),
    ("webhook --quota-configmap=x", "NAMESPACE/NAME"),
    ("webhook --default-memory=some", "16GiB"),
    ("webhook --default-memory=1MiB", "256MiB"),
    ("webhook --port=70000", "70000"),
    ("webhook --kubeconfig=/nowhere/at/all", "/nowhere/at/all"),
)  # fmt: skip

FAILS = (
    ("extender", "no --kubeconfig is given"),
    ("webhook", "--kubeconfig"),
    ("top --agent http://127.0.0.1:1", "127.0.0.1:1: cannot ask the agent: Connection refused"),
    ("tree --agent http://127.0.0.1:1", "cannot ask the agent: Connection refused"),
)


@pytest.fixture(autouse=True)
def _among_files_outside_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        pytest.param(words, status, said, id=words[:60])
        for status, rows in ((2, BAD), (1, FAILS))
        for words, said in rows
    ],
)
def test_what_a_command_cannot_do_is_one_line_on_stderr(
    words: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shlex.split(words)) == status

    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("gpumanager: ")
    assert said in error


def test_a_port_that_is_taken_is_told_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        assert run(["simulate", "--serve", str(port), "pod.yaml"]) == 1

    assert capsys.readouterr().err == (
        f"gpumanager: cannot serve on port {port}: Address already in use; "
        "name another one with --serve PORT\n"
    )
