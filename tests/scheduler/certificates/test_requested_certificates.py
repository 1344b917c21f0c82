"""Certificates that a signer of the cluster is asked for, by a CertificateSigningRequest."""

import base64
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from gpumanager.scheduler.certificates.sources import RETRY_REFUSED_AFTER, RequestedCertificate
from gpumanager.scheduler.certificates.x509 import (
    CertificateTrouble,
    KeyPair,
    issue,
    make_authority,
    read_certificate,
)
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.patch import MERGE
from tests.scheduler.certificates.certificate_world import (
    HOST,
    NAMES,
    Cluster,
    believes,
)

pytest_plugins = ["tests.scheduler.certificates.certificate_fixtures"]

YEAR = timedelta(days=365)
SIGNER = "example.com/webhooks"


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
        like = issue(self._authority, names_of(asked), now, timedelta(days=90))
        certificate = with_key_of(asked, like.certificate, self._authority)
        await self.say({"certificate": base64.b64encode(certificate).decode()})

    async def say(self, status: Any) -> None:
        key = Key("certificatesigningrequests", "", self.requests[-1]["metadata"]["name"])
        await self._cluster.server.change(key, MERGE, {"status": status}, status=True)

    def believes(self, certificate: bytes, now: datetime) -> bool:
        return believes(self._authority.certificate, certificate, now)


def names_of(request: x509.CertificateSigningRequest) -> list[str]:
    found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return found.value.get_values_for_type(x509.DNSName)


def with_key_of(request: x509.CertificateSigningRequest, like: bytes, authority: KeyPair) -> bytes:
    """A certificate as `like`, for the key of the request."""
    made, key = x509.load_pem_x509_certificate(like), request.public_key()
    lived = made.not_valid_before_utc, made.not_valid_after_utc
    builder = x509.CertificateBuilder(made.issuer, made.subject, key, made.serial_number, *lived)
    for one in made.extensions:
        if not isinstance(one.value, x509.SubjectKeyIdentifier):
            builder = builder.add_extension(one.value, critical=one.critical)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key)
    signer: Any = serialization.load_pem_private_key(authority.key, None)
    signed = builder.add_extension(identifier, critical=False).sign(signer, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


async def asked(cluster: Cluster) -> tuple[Signer, RequestedCertificate]:
    """A signer with one request that waits for it, and who made that."""
    source = RequestedCertificate(cluster.api(), SIGNER, NAMES)
    with pytest.raises(CertificateTrouble):
        await source.fetch(cluster.clock())
    return Signer(cluster), source


async def test_a_signer_of_the_cluster_is_asked_once_and_its_certificate_served(
    cluster: Cluster,
) -> None:
    signer = Signer(cluster)
    source = RequestedCertificate(cluster.api(), SIGNER, NAMES)
    for _ in range(3):
        with pytest.raises(CertificateTrouble, match="kubectl certificate approve"):
            await source.fetch(cluster.clock())
    await signer.sign()

    identity = await source.fetch(cluster.clock())

    assert signer.believes(identity.certificate, cluster.clock())
    identity.context()
    assert len(signer.requests) == 1
    spec = signer.requests[0]["spec"]
    assert spec["signerName"] == SIGNER
    assert spec["usages"] == ["digital signature", "server auth"]
    assert read_certificate(identity.certificate).names == {HOST, *NAMES}


async def test_before_its_certificate_ends_the_signer_is_asked_for_another(
    cluster: Cluster,
) -> None:
    signer, source = await asked(cluster)
    await signer.sign()
    first = await source.fetch(cluster.clock())

    cluster.clock.move(days=61)
    assert await source.fetch(cluster.clock()) == first  # while it waits
    await signer.sign()
    second = await source.fetch(cluster.clock())

    assert second != first
    assert signer.believes(second.certificate, cluster.clock())


@pytest.mark.parametrize("kind", ["Denied", "Failed"])
async def test_a_refusal_is_said_in_its_own_words_and_asked_again_after_a_while(
    cluster: Cluster, kind: str
) -> None:
    signer, source = await asked(cluster)
    await signer.say({"conditions": [{"type": kind, "message": "not you"}]})

    with pytest.raises(CertificateTrouble, match=f"{kind}: not you"):
        await source.fetch(cluster.clock())
    with pytest.raises(CertificateTrouble, match="the next request is in some minutes"):
        await source.fetch(cluster.clock())
    assert len(signer.requests) == 1

    cluster.clock.move(seconds=RETRY_REFUSED_AFTER.total_seconds())
    with pytest.raises(CertificateTrouble, match="approve"):
        await source.fetch(cluster.clock())
    assert len(signer.requests) == 2


async def test_after_a_refusal_a_clock_that_is_set_back_delays_nothing(cluster: Cluster) -> None:
    signer, source = await asked(cluster)
    await signer.say({"conditions": [{"type": "Denied", "message": "not you"}]})
    with pytest.raises(CertificateTrouble, match="not you"):
        await source.fetch(cluster.clock())

    cluster.clock.move(seconds=-5 * 3600)
    with pytest.raises(CertificateTrouble, match="approve"):
        await source.fetch(cluster.clock())


async def test_a_certificate_that_cannot_be_served_with_is_asked_for_again(
    cluster: Cluster,
) -> None:
    signer, source = await asked(cluster)
    stranger = issue(make_authority(cluster.clock(), YEAR), NAMES, cluster.clock(), YEAR)
    await signer.say({"certificate": base64.b64encode(stranger.certificate).decode()})

    with pytest.raises(CertificateTrouble, match="do not go together"):
        await source.fetch(cluster.clock())

    cluster.clock.move(seconds=RETRY_REFUSED_AFTER.total_seconds())
    with pytest.raises(CertificateTrouble, match="approve"):
        await source.fetch(cluster.clock())
    await signer.sign()
    assert signer.believes((await source.fetch(cluster.clock())).certificate, cluster.clock())


async def test_a_request_that_was_deleted_is_made_anew(cluster: Cluster) -> None:
    signer, source = await asked(cluster)
    name = signer.requests[0]["metadata"]["name"]
    await cluster.server.remove(Key("certificatesigningrequests", "", name))

    with pytest.raises(CertificateTrouble, match="is gone"):
        await source.fetch(cluster.clock())
    with pytest.raises(CertificateTrouble, match="approve"):
        await source.fetch(cluster.clock())
    assert len(signer.requests) == 1
