"""What is made of the sources brings all that works without them: the sdist, the wheel that is
built of it, the venv that it is installed in, and the container image. `pip install -e .` builds
all in the sources. The wheel is built once, without optimization: what is shown is what is where.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import AsyncIterator, Iterable
from importlib.util import cache_from_source
from pathlib import Path

import image
import pytest

from gpumanager import __version__
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.chart import image_contents
from tests.e2e.node import agent_image
from tests.e2e.node.agent_image import needed
from tests.hostile.random_attacks import free_port
from tests.scheduler.webhook.review_texts import pod, review
from tests.sim.claims.claim_objects import claim, request
from tests.waiting import until

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, with nothing built in them."""
    tree = tmp_path_factory.mktemp("checkout") / "tree"
    built = shutil.ignore_patterns(".*", "lib", "bin", "*.so", "build", "*.egg-info")
    return shutil.copytree(ROOT, tree, ignore=built, symlinks=True)


@pytest.fixture(scope="module")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy: other tests build in this tree at the same time."""
    out = tmp_path_factory.mktemp("sdist")
    script = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    python(script, str(out), at=shutil.copytree(checkout, out / "tree", symlinks=True))
    (made,) = out.glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    quick = compiler(sdist.with_name("cc"), 'exec gcc "$@" -O0 -g0')
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    build = [*command, "-w", str(sdist.parent), str(sdist)]
    subprocess.run(build, check=True, timeout=1800, env=os.environ | quick)
    (built,) = sdist.parent.glob("*.whl")
    return built


def compiler(program: Path, line: str) -> dict[str, str]:
    """The environment in which that is the compiler."""
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)
    return {"CC": str(program)}


def python(script: str, *words: str, at: Path, **environment: str) -> None:
    command = [sys.executable, "-c", script, *words]
    subprocess.run(command, cwd=at, check=True, timeout=1800, env=os.environ | environment)


@pytest.fixture(scope="module")
def packages(wheel: Path) -> Path:
    """What it requires and nothing else, linked from this Python's packages: no index is asked."""
    site = wheel.with_name("packages")
    for file in (file for one in needed() for file in one.files or () if ".." not in file.parts):
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).symlink_to(file.locate())
    return site


@pytest.fixture(scope="module")
def venv(wheel: Path, packages: Path) -> Path:
    """A venv into which pip has installed the wheel, without extras, and found what it requires."""
    home = wheel.with_name("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    shutil.copytree(packages, site, symlinks=True, dirs_exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install", "-q"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, timeout=1800)
    return home


@pytest.fixture(scope="module")
def installed(venv: Path) -> Path:
    """Where the venv has its packages."""
    (site,) = venv.glob("lib/python*/site-packages")
    return site


NATIVE = (
    "vcuda_shim/lib/shim/libcuda.so.1",
    "vcuda_shim/lib/shim/libnvidia-ml.so.1",
    "vcuda_shim/lib/driver/libcuda.so.555.58.02",
    "vcuda_shim/lib/driver/libnvidia-ml.so.555.58.02",
    "vcuda_shim/lib/driver-cuda-13/libcuda.so.615.71.09",
    "vcuda_shim/lib/driver-cuda-13/libnvidia-ml.so.615.71.09",
    "vcuda_shim/lib/clock/libsimclock.so",
    "vcuda_shim/bin/cuda-play",
    "vcuda_shim/bin/cuda-work",
    f"vcuda_shim/_shim{sysconfig.get_config_var('EXT_SUFFIX')}",
    f"vcuda_shim/_sim{sysconfig.get_config_var('EXT_SUFFIX')}",
    f"vcuda_shim/_arbiter{sysconfig.get_config_var('EXT_SUFFIX')}",
)


DATA = ("gpumanager/volume/volume.conf", "gpumanager/sim/machines/dgx-a100.yaml")


def test_the_wheel_brings_what_the_code_needs(installed: Path) -> None:
    assert [name for name in (*NATIVE, *DATA) if not (installed / name).stat().st_size] == []


def test_programs_can_be_executed(installed: Path) -> None:
    finished = subprocess.run(
        [installed / "vcuda_shim/bin/cuda-play"], check=False, capture_output=True
    )

    assert finished.returncode == 2


def environment() -> dict[str, str]:
    """Without what would bring in this checkout, or a cluster of this machine."""
    left_out = {"PYTHONPATH", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def is_sound(said: str) -> bool:
    """Whether a command ended as it is meant to, be that with an error."""
    return not re.search("internal error|Traceback|No module named", said)


def typed(venv: Path, folder: Path, *words: str | Path) -> tuple[int, str]:
    """Status and output of a command that is typed in a folder."""
    finished = subprocess.run(
        [venv / "bin/gpumanager", *words],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert is_sound(finished.stdout), finished.stdout
    return finished.returncode, finished.stdout


@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("example", "where"),
    [
        ("half-a-gpu.yaml", "in the checkout"),
        ("claims/one-share.yaml", "elsewhere"),
    ],
)
def test_the_installed_command_simulates_wherever_it_is_typed(
    example: str, where: str, venv: Path, checkout: Path, tmp_path: Path
) -> None:
    folder = checkout if where == "in the checkout" else tmp_path

    status, said = typed(venv, folder, "simulate", checkout / "examples" / example)

    assert status == 0, said


JSON = "application/json"
FILES = {
    "topology": "\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n",
    "pods.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\nhalf,1000,1024,1,500,\n",
    "nodes.csv": "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\n",
}


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("version", 0, __version__),
        ("plan --topology topology --request 200 --json", 0, '"gpus": [0, 1]'),
        ("tree --topology topology", 0, "4 NVLinks"),
        ("replay --pods pods.csv --nodes nodes.csv --load 0.5 --json", 0, '"placed": 2'),
        ("doctor --driver-root nowhere", 1, "driver libraries"),
        ("top --agent http://127.0.0.1:1", 1, "cannot ask the agent: Connection refused"),
    ],
)
def test_an_installed_command_does_its_job(
    line: str, status: int, words: str, venv: Path, tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    ended, said = typed(venv, tmp_path, *line.split())

    assert ended == status, said
    assert words in said


@contextlib.asynccontextmanager
async def served(venv: Path, folder: Path, *words: str) -> AsyncIterator[str]:
    """The URL of a service that is started in a folder, and told to stop at the end."""
    log = folder / f"{words[0]}.log"
    program = venv / "bin/gpumanager"
    with log.open("w") as out:
        service = await asyncio.create_subprocess_exec(
            program, *words, cwd=folder, env=environment(), stdout=out, stderr=out
        )
    try:
        found = await until(
            lambda: (
                re.search(r"on (?:port |http://[^:]+:)(\d+)", log.read_text())
                or service.returncode is not None
            )
        )
        assert isinstance(found, re.Match), log.read_text()
        yield f"http://127.0.0.1:{found[1]}"
        service.terminate()
        await until(lambda: service.returncode is not None)
    finally:
        if service.returncode is None:
            service.kill()
        await service.wait()
    assert service.returncode == 0, log.read_text()
    assert is_sound(log.read_text()), log.read_text()


@pytest.fixture
async def api() -> AsyncIterator[SimulatedApiServer]:
    server = SimulatedApiServer()
    await server.start()
    yield server
    await server.stop()


async def test_installed_services_answer_and_stop_when_told(
    api: SimulatedApiServer, venv: Path, tmp_path: Path
) -> None:
    await api.create("resourceclaims", claim(request("gpu", 30, "1Gi")))
    (tmp_path / "kubeconfig").write_text(api.kubeconfig)
    cluster = "--kubeconfig=kubeconfig"
    paths = ("device-plugin-path", "virtual-manager-path", "checkpoint-path", "volume-base")
    directories = [f"--{name}={tmp_path / name}" for name in paths]
    node = ["--standalone", "--probe-socket=probe", f"--query-port={free_port()}", *directories]
    hook = ["--plain-http", "--address=127.0.0.1", "--port=0", cluster]

    async def answers(status: int, words: str, *line: str) -> None:
        ended, said = await asyncio.to_thread(typed, venv, tmp_path, *line)
        assert ended == status, said
        assert words in " ".join(said.split())

    async with (
        served(venv, tmp_path, "agent", "--driver-root=nowhere", *node) as agent,
        served(venv, tmp_path, "extender", "--address=127.0.0.1:0", cluster) as extender,
        served(venv, tmp_path, "webhook", *hook) as webhook,
    ):
        both = (f"--agent={agent}", f"--extender={extender}")
        await answers(0, "ok", "probe", "healthz", "--socket=probe")
        await answers(0, "granted", "top", both[0])
        await answers(1, "knows nothing of it", "explain", "default/nobody", *both)
        await answers(0, "No node offers GPUs to claims", "explain", "claim", "default/c", cluster)
        body = json.dumps(review(pod())).encode()
        asked = urllib.request.Request(f"{webhook}/mutate", body, {"Content-Type": JSON})
        with await asyncio.to_thread(urllib.request.urlopen, asked) as answer:
            assert json.load(answer)["response"]["allowed"] is True


STAND_IN = """\
case " $* " in *" -E "*) exec gcc "$@" ;; esac
while [ "$1" != -o ]; do shift; done
echo made >"$2"
"""
"""A compiler whose libraries and programs are only files: the real one builds the wheel's."""


def test_an_editable_install_builds_everything_in_the_source_tree(
    checkout: Path, tmp_path: Path
) -> None:
    tree = shutil.copytree(checkout, tmp_path / "tree", symlinks=True)
    script = "from setuptools.build_meta import build_editable; build_editable('..')"

    python(script, at=tree, **compiler(tmp_path / "cc", STAND_IN))

    assert [name for name in NATIVE if not (tree / name).stat().st_size] == []


@pytest.fixture(scope="module")
def furnished(wheel: Path) -> Path:
    """What the Dockerfile's first stage makes, without others' packages and machines' shims."""
    destination = wheel.with_name("image")
    image.furnish(destination, wheel=wheel, packages=False, shims=False)
    return destination


def test_the_image_holds_what_is_listed_and_nothing_else_of_ours(furnished: Path) -> None:
    names = image_contents.files(furnished)

    assert image_contents.unlisted(names) == []
    assert image_contents.unmet(names) == []


def test_nothing_is_in_the_image_that_nobody_runs(furnished: Path) -> None:
    others = (f"{image.SITE}/{name}" for name in agent_image.packaged())

    assert image_contents.of_no_use([*image_contents.files(furnished), *others]) == []


def test_the_image_for_a_real_node_has_the_same_files(furnished: Path) -> None:
    def ours(names: Iterable[str]) -> set[str]:
        of_us, written = re.compile(r"gpumanager/|vcuda_shim/"), re.compile(r"\.pyc$|/lib/shim-")
        return {one for one in names if of_us.match(one) and not written.search(one)}

    names = [one.removeprefix(f"{image.SITE}/") for one in image_contents.files(furnished)]
    assert ours(agent_image.packaged()) == ours(names)


def test_every_module_of_the_image_is_compiled(furnished: Path) -> None:
    modules = [one for one in (furnished / image.SITE).rglob("*.py") if one.stat().st_size]

    assert len(modules) > 200
    assert [one for one in modules if not Path(cache_from_source(str(one))).is_file()] == []


@pytest.mark.parametrize("command", ["agent", "extender", "webhook", "doctor", "explain"])
def test_a_command_starts_with_what_is_in_the_image_alone(
    furnished: Path, packages: Path, command: str
) -> None:
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    environment = {
        "PYTHONPATH": f"{furnished / image.SITE}:{packages}",
        "PATH": f"{python.parent}:/usr/bin:/bin",
    }

    done = subprocess.run(
        [str(furnished / image.LAUNCHER), command, "--help"],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: gpumanager {command}")
