"""HTTPS, with a certificate that is replaced while it serves."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from gpumanager.cli import run
from gpumanager.scheduler.certificates.keeper import Files, Keeper
from gpumanager.scheduler.certificates.x509 import CertificateTrouble
from gpumanager.scheduler.extender.server import ExtenderServer
from gpumanager.scheduler.http.server import PROBES, Clients
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.scheduler.served_extender import serving

pytest_plugins = ["tests.scheduler.extender_fixtures"]


def make(folder: Path, name: str) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    path, key = folder / "tls.crt", folder / "tls.key"
    made = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name}"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    places = ["-keyout", str(key), "-out", str(path)]
    subprocess.run(["openssl", *made.split(), *names, *places], check=True, capture_output=True)
    return path, key


async def begun(files: tuple[Path, Path], callers: Path | None = None) -> Keeper:
    keeper = Keeper(Files(*files, callers))
    await keeper.begin()
    return keeper


async def answered(
    port: int, authority: Path, ours: tuple[Path, Path] | None = None, path: str = "/metrics"
) -> bool:
    """Whether somebody with this certificate is answered."""
    context = ssl.create_default_context(cafile=authority)
    if ours is not None:
        context.load_cert_chain(*ours)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        line = await reader.readline()
    except OSError:
        return False
    writer.transport.abort()
    return b" 200 " in line


async def test_only_callers_of_the_authority_are_served_and_it_may_be_replaced(
    api: SimulatedApiServer, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("server", "first", "second")]
    for folder in folders:
        folder.mkdir()
    server, first, second = [make(folder, folder.name) for folder in folders]
    believed = tmp_path / "callers.crt"
    shutil.copy(first[0], believed)
    certificate = await begun(server, believed)
    async with serving(api) as one:
        closed = ExtenderServer(one.extender, clients=Clients())
        port = await closed.start("127.0.0.1", 0, certificate.context)
        before = [await answered(port, server[0], ours) for ours in (first, second, None)]
        shutil.copy(second[0], believed)
        await certificate.refresh()
        after = [await answered(port, server[0], ours) for ours in (first, second, None)]
        probes = [await answered(port, server[0], None, path) for path in sorted(PROBES)]
        await closed.stop()

    assert before == [True, False, False]
    assert after == [False, True, False]
    assert probes == [True] * len(PROBES)


@pytest.mark.parametrize("content", ["", "nobody"])
async def test_an_authority_that_is_none_lets_nobody_in_for_that(
    tmp_path: Path, content: str
) -> None:
    believed = tmp_path / "callers.crt"
    believed.write_text(content)

    with pytest.raises(CertificateTrouble, match="client CA file"):
        await begun(make(tmp_path, "server"), believed)


async def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    path, key = make(tmp_path, "server")

    with pytest.raises(CertificateTrouble, match="do not go together"):
        await begun((path, locked(key)))


def locked(key: Path) -> Path:
    """The same key behind a password."""
    path = key.with_name("locked.key")
    words = ["pkey", "-in", str(key), "-aes128", "-passout", "pass:secret", "-out", str(path)]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    return path


async def test_explain_believes_the_authority_that_it_is_given(
    api: SimulatedApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = make(tmp_path, "extender")
    certificate = await begun(files)
    async with serving(api) as one:
        port = await one.server.start("127.0.0.1", 0, certificate.context)
        words = ["explain", "default/p", "--extender", f"https://127.0.0.1:{port}"]

        believing = await asyncio.to_thread(run, [*words, "--ca-file", str(files[0])])
        known = capsys.readouterr().err
        doubting = await asyncio.to_thread(run, words)

    assert (believing, doubting) == (1, 2)
    assert "pod default/p is not known" in known
    assert "certificate verify failed" in capsys.readouterr().err
