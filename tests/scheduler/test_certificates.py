"""Certificates of a webhook that runs: shared, rotated, given, asked for."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from certificate_world import (
    CONFIGURATION,
    HOST,
    NAMES,
    SECRET_KEY,
    Cluster,
    Replica,
    believes,
)
from cryptography import x509

from gpumanager.cluster.api import ApiRefused, ApiUnavailable
from gpumanager.scheduler.certificates.bundle import Bundles
from gpumanager.scheduler.certificates.estate import SETTLED, Lives
from gpumanager.scheduler.certificates.files import Files
from gpumanager.scheduler.certificates.keeper import Keeper
from gpumanager.scheduler.certificates.making import describe, issue, make_authority, split
from gpumanager.scheduler.certificates.requested import AGAIN, RequestedCertificate
from gpumanager.scheduler.certificates.values import CertificateTrouble, Identity
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.patch import MERGE
from gpumanager.sim.cluster.server import SimulatedApiServer

YEAR = timedelta(days=365)
SIGNER = "example.com/webhooks"


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    server = SimulatedApiServer()
    await server.start()
    world = Cluster(server)
    await world.configure()
    yield world
    await server.stop()


async def test_the_first_look_makes_a_certificate_and_tells_every_webhook_whom_to_believe(
    cluster: Cluster,
) -> None:
    async with cluster.replica() as replica:
        shown = await replica.shown()

    assert len(cluster.bundles()) == 4
    assert all(believes(bundle, shown, cluster.clock()) for bundle in cluster.bundles())
    hook = cluster.server.objects.get(Key("mutatingwebhookconfigurations", "", CONFIGURATION))[
        "webhooks"
    ][1]
    assert hook["failurePolicy"] == "Ignore"
    assert hook["clientConfig"]["service"]["path"] == "/x"


async def test_replicas_that_begin_together_agree_on_one_certificate(cluster: Cluster) -> None:
    found = await asyncio.gather(*(cluster.own().look(cluster.clock()) for _ in range(5)))

    assert len(set(found)) == 1
    assert len(set(cluster.bundles())) == 1


async def test_a_restart_serves_what_was_served_before(cluster: Cluster) -> None:
    async with cluster.replica() as first:
        before = await first.shown()
    async with cluster.replica() as second:
        assert await second.shown() == before


async def test_whoever_connects_over_two_years_of_rotation_always_believes_what_it_sees(
    cluster: Cluster,
) -> None:
    """Two replicas look at different times; the API server knows a bundle a minute late."""
    serials, authorities = set[int](), set[bytes]()
    async with cluster.replica() as one, cluster.replica() as other:
        late = cluster.bundles()
        for turn in range(30):
            cluster.clock.move(days=25)
            for pause in (timedelta(), SETTLED, SETTLED):
                cluster.clock.move(seconds=pause.total_seconds())
                for replica in (one, other)[:: 1 if turn % 2 else -1]:
                    await replica.keeper.look()
                    await check(cluster, (one, other), late)
                late = cluster.bundles()
            serials.add(serial(await one.shown()))
            authorities.update(split(late[0]))
    assert len(serials) > 8
    assert len(authorities) > 2


def serial(certificate: bytes) -> int:
    return x509.load_pem_x509_certificate(certificate).serial_number


async def check(cluster: Cluster, replicas: tuple[Replica, ...], late: list[bytes]) -> None:
    for replica in replicas:
        shown = await replica.shown()
        for bundle in {*late, *cluster.bundles()}:
            assert believes(bundle, shown, cluster.clock())


async def test_an_authority_that_nobody_was_told_of_signs_nothing(cluster: Cluster) -> None:
    source = cluster.own(Lives(authority=timedelta(days=30), serving=timedelta(days=9)))
    await source.look(cluster.clock())
    known = cluster.bundles()[0]
    cluster.server.objects.remove(Key("mutatingwebhookconfigurations", "", CONFIGURATION))
    cluster.server.objects.remove(Key("validatingwebhookconfigurations", "", CONFIGURATION))

    for _ in range(28):
        cluster.clock.move(days=1)
        identity = await source.look(cluster.clock())
        assert believes(known, identity.certificate, cluster.clock())

    assert cluster.secret()["next.crt"] != ""


async def test_who_changes_a_configuration_at_the_same_moment_is_not_undone(
    cluster: Cluster,
) -> None:
    key = Key("mutatingwebhookconfigurations", "", CONFIGURATION)
    api = Meddling(cluster, key, {"metadata": {"labels": {"theirs": "kept"}}})

    assert not await Bundles(api, [CONFIGURATION]).announce(b"bundle")

    assert cluster.bundles() == [b"bundle"] * 4
    assert cluster.server.objects.get(key)["metadata"]["labels"] == {"theirs": "kept"}


class Meddling:
    """Somebody else writes between our reading and our first writing."""

    def __init__(self, cluster: Cluster, key: Key, change: Any) -> None:
        self._api, self._cluster = cluster.api(), cluster
        self._key, self._change = key, change

    async def get(self, path: str, **query: object) -> Any:
        return await self._api.get(path, **query)

    async def create(self, path: str, body: Any) -> Any:
        return await self._api.create(path, body)

    async def patch(self, path: str, body: Any) -> Any:
        change, self._change = self._change, None
        if change:
            await self._cluster.server.change(self._key, MERGE, change)
        return await self._api.patch(path, body)


async def test_a_damaged_secret_is_named_with_what_to_do_and_what_is_there_is_served_on(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.replica() as replica:
        before = await replica.shown()
        await cluster.server.change(SECRET_KEY, MERGE, {"data": {"ca.crt": "bm90IG9uZQ=="}})

        await replica.keeper.look()
        await replica.keeper.look()

        assert await replica.shown() == before
    said = [one.message for one in caplog.records if "delete it" in one.message]
    assert len(said) == 1
    assert "secret kube-system/gpu-manager-webhook" in said[0]


async def test_while_the_api_server_is_away_what_is_there_is_served_on(cluster: Cluster) -> None:
    async with cluster.replica() as replica:
        before = await replica.shown()
        await cluster.server.stop()

        await replica.keeper.look()

        assert await replica.shown() == before
        await cluster.server.start()


async def test_what_is_refused_for_another_reason_than_a_conflict_is_said(cluster: Cluster) -> None:
    cluster.server.refuse(403, "Forbidden")

    with pytest.raises(ApiRefused, match="Forbidden"):
        await cluster.own().look(cluster.clock())


async def test_without_an_api_server_and_a_certificate_nothing_can_be_served(
    cluster: Cluster,
) -> None:
    await cluster.server.stop()

    with pytest.raises(ApiUnavailable):
        await cluster.own().look(cluster.clock())
    keeper = Keeper(cluster.own(), cluster.clock)
    await keeper.look()
    with pytest.raises(CertificateTrouble):
        keeper.context()
    await cluster.server.start()


# From files


def put(folder: Path, identity: Identity) -> Files:
    """As a mounted Secret is replaced: all files at once."""
    version = folder / f"..{len(list(folder.iterdir()))}"
    version.mkdir()
    (version / "tls.crt").write_bytes(identity.certificate)
    (version / "tls.key").write_bytes(identity.key)
    link = folder / "..new"
    link.symlink_to(version)
    os.replace(link, folder / "..data")  # noqa: PTH105 - in one step
    return Files(folder / "..data" / "tls.crt", folder / "..data" / "tls.key")


async def test_files_that_change_are_served_to_who_connects_next_and_others_stay(
    cluster: Cluster, tmp_path: Path
) -> None:
    authority = make_authority(cluster.clock(), YEAR)
    first, second = (issue(authority, NAMES, cluster.clock(), YEAR) for _ in range(2))
    async with cluster.replica(put(tmp_path, first)) as replica:
        assert await replica.shown() == first.certificate

        put(tmp_path, second)
        await replica.keeper.look()

        assert await replica.shown() == second.certificate


async def test_files_that_do_not_go_together_yet_change_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    authority = make_authority(cluster.clock(), YEAR)
    first, second = (issue(authority, NAMES, cluster.clock(), YEAR) for _ in range(2))
    async with cluster.replica(put(tmp_path, first)) as replica:
        put(tmp_path, Identity(second.certificate, first.key))
        await replica.keeper.look()
        assert await replica.shown() == first.certificate

        put(tmp_path, second)
        await replica.keeper.look()
        assert await replica.shown() == second.certificate


@pytest.mark.parametrize("content", [b"", b"no certificate", None])
async def test_files_that_are_no_certificate_are_named(
    cluster: Cluster, tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path / "tls.crt", tmp_path / "tls.key")
    if content is not None:
        for path in (files.certificate, files.key):
            path.write_bytes(content)
    keeper = Keeper(files, cluster.clock)

    await keeper.look()

    assert not keeper.first.is_set()
    assert [one for one in caplog.records if "ertificate" in one.message] != []


async def test_a_certificate_that_nothing_follows_is_warned_of_once_before_it_ends(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = make_authority(cluster.clock(), YEAR)
    identity = issue(authority, NAMES, cluster.clock(), timedelta(days=60))
    keeper = Keeper(put(tmp_path, identity), cluster.clock)
    for days in (0, 40, 12, 1):
        cluster.clock.move(days=days)
        await keeper.look()

    said = [one.message for one in caplog.records if "has not been followed" in one.message]
    assert len(said) == 1


# By a CertificateSigningRequest


class Signer:
    """A controller of the cluster that approves and signs, or does not."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._authority = make_authority(cluster.clock(), 10 * YEAR)

    @property
    def requests(self) -> list[Any]:
        return list(self._cluster.server.objects.list("certificatesigningrequests"))

    async def sign(self) -> None:
        now = self._cluster.clock()
        spec = self.requests[-1]["spec"]
        asked = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
        issuer = x509.load_pem_x509_certificate(self._authority.certificate)
        made = issue(self._authority, names_of(asked), now, timedelta(days=90))
        certificate = with_key_of(asked, made, issuer, self._authority)
        await self.say({"certificate": base64.b64encode(certificate).decode()})

    async def say(self, status: Any) -> None:
        key = Key("certificatesigningrequests", "", self.requests[-1]["metadata"]["name"])
        await self._cluster.server.change(key, MERGE, {"status": status}, status=True)

    def believes(self, certificate: bytes, now: datetime) -> bool:
        return believes(self._authority.certificate, certificate, now)


def names_of(request: x509.CertificateSigningRequest) -> list[str]:
    found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return found.value.get_values_for_type(x509.DNSName)


def with_key_of(
    request: x509.CertificateSigningRequest,
    made: Identity,
    issuer: x509.Certificate,
    authority: Identity,
) -> bytes:
    """`made`, for the key of the request."""
    from cryptography.hazmat.primitives import hashes, serialization

    like = x509.load_pem_x509_certificate(made.certificate)
    builder = x509.CertificateBuilder(
        issuer.subject,
        like.subject,
        request.public_key(),
        like.serial_number,
        like.not_valid_before_utc,
        like.not_valid_after_utc,
    )
    for extension in like.extensions:
        value: Any = extension.value
        if isinstance(value, x509.SubjectKeyIdentifier):
            value = x509.SubjectKeyIdentifier.from_public_key(request.public_key())
        builder = builder.add_extension(value, critical=extension.critical)
    key: Any = serialization.load_pem_private_key(authority.key, None)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


async def test_a_signer_of_the_cluster_is_asked_once_and_its_certificate_served(
    cluster: Cluster,
) -> None:
    signer = Signer(cluster)
    source = RequestedCertificate(cluster.api(), SIGNER, NAMES)
    for _ in range(3):
        with pytest.raises(CertificateTrouble, match="kubectl certificate approve"):
            await source.look(cluster.clock())
    await signer.sign()

    identity = await source.look(cluster.clock())

    assert signer.believes(identity.certificate, cluster.clock())
    identity.context()
    assert len(signer.requests) == 1
    spec = signer.requests[0]["spec"]
    assert spec["signerName"] == SIGNER
    assert spec["usages"] == ["digital signature", "server auth"]
    assert describe(identity.certificate).names == {HOST, *NAMES}


async def test_before_its_certificate_ends_the_signer_is_asked_for_another(
    cluster: Cluster,
) -> None:
    signer = Signer(cluster)
    source = RequestedCertificate(cluster.api(), SIGNER, NAMES)
    with pytest.raises(CertificateTrouble):
        await source.look(cluster.clock())
    await signer.sign()
    first = await source.look(cluster.clock())

    cluster.clock.move(days=61)
    assert await source.look(cluster.clock()) == first  # while it waits
    await signer.sign()
    second = await source.look(cluster.clock())

    assert second != first
    assert signer.believes(second.certificate, cluster.clock())


@pytest.mark.parametrize("kind", ["Denied", "Failed"])
async def test_a_refusal_is_said_in_its_own_words_and_asked_again_after_a_while(
    cluster: Cluster, kind: str
) -> None:
    signer = Signer(cluster)
    source = RequestedCertificate(cluster.api(), SIGNER, NAMES)
    with pytest.raises(CertificateTrouble):
        await source.look(cluster.clock())
    await signer.say({"conditions": [{"type": kind, "message": "not you"}]})

    with pytest.raises(CertificateTrouble, match=f"{kind}: not you"):
        await source.look(cluster.clock())
    with pytest.raises(CertificateTrouble, match="asked again"):
        await source.look(cluster.clock())
    assert len(signer.requests) == 1

    cluster.clock.move(seconds=AGAIN.total_seconds())
    with pytest.raises(CertificateTrouble, match="approve"):
        await source.look(cluster.clock())
    assert len(signer.requests) == 2


async def test_a_request_that_was_deleted_is_made_anew(cluster: Cluster) -> None:
    signer = Signer(cluster)
    source = RequestedCertificate(cluster.api(), SIGNER, NAMES)
    with pytest.raises(CertificateTrouble):
        await source.look(cluster.clock())
    name = signer.requests[0]["metadata"]["name"]
    await cluster.server.remove(Key("certificatesigningrequests", "", name))

    with pytest.raises(CertificateTrouble, match="is gone"):
        await source.look(cluster.clock())
    with pytest.raises(CertificateTrouble, match="approve"):
        await source.look(cluster.clock())
    assert len(signer.requests) == 1
