"""An API server with webhook configurations, a clock that is set, and who connects by what it says.

The one who connects believes what stands in a `caBundle`, as a kube-apiserver does, at the time of
the clock: OpenSSL would look at the real one.
"""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.verification import PolicyBuilder, Store

from gpumanager.kube.client import KubeClient
from gpumanager.scheduler.certificates.keeper import Files, Keeper
from gpumanager.scheduler.certificates.own_ca import OwnCertificate
from gpumanager.scheduler.certificates.x509 import KeyPair
from gpumanager.scheduler.http.server import Routes
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.kube_clients import client_of
from tests.scheduler.http.served import Served, serving

HOST = "gpu-manager-webhook.kube-system.svc"
NAMES = (HOST, "gpu-manager-webhook.kube-system")
SECRET = ("kube-system", "gpu-manager-webhook")
SECRET_KEY = Key("secrets", "kube-system", "gpu-manager-webhook")
CONFIGURATION = "gpu-manager"
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)


class Cluster:
    """api: a client of the server, one for each who asks."""

    def __init__(self, server: SimulatedApiServer) -> None:
        self.server = server
        self.clock = Clock()

    def api(self) -> KubeClient:
        return client_of(self.server)

    async def configure(self) -> None:
        """As somebody who installs us does."""
        for kind in KINDS:
            hooks = [
                {
                    "name": f"{number}.gpu-manager.tencent.com",
                    "clientConfig": {"service": {"name": "gpu-manager-webhook", "path": "/x"}},
                    "failurePolicy": "Ignore",
                }
                for number in range(2)
            ]
            await self.server.create(kind, {"metadata": {"name": CONFIGURATION}, "webhooks": hooks})

    def bundles(self) -> list[bytes]:
        """What each webhook of each configuration says is to be believed."""
        found = [self.server.objects.get(Key(kind, "", CONFIGURATION)) for kind in KINDS]
        hooks = [hook for one in found for hook in one["webhooks"]]
        return [base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks]

    def own(self, api: Any = None) -> OwnCertificate:
        """One replica's source."""
        return OwnCertificate(api or self.api(), SECRET, NAMES, [CONFIGURATION])

    def secret(self) -> Any:
        return self.server.objects.get(SECRET_KEY)["data"]

    @contextlib.asynccontextmanager
    async def replica(
        self, source: Files | OwnCertificate | None = None, routes: Routes | None = None
    ) -> AsyncIterator["Replica"]:
        keeper = Keeper(source or self.own(), self.clock)
        await keeper.refresh()
        async with serving(routes or {}, tls=keeper.context) as served:
            yield Replica(keeper, served)


class Replica:
    """A server and what keeps its certificate."""

    def __init__(self, keeper: Keeper, served: Served) -> None:
        self.keeper = keeper
        self.served = served

    async def shown(self) -> bytes:
        """The certificate that who connects now is shown, PEM."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # of no authorities
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", self.served.port, ssl=context)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return ssl.DER_cert_to_PEM_cert(found).encode()


def believes(bundle: bytes, certificate: bytes, now: datetime, host: str = HOST) -> bool:
    """As a kube-apiserver with this bundle judges a server of that name."""
    store = Store(x509.load_pem_x509_certificates(bundle))
    verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(host))
    try:
        verifier.verify(x509.load_pem_x509_certificate(certificate), [])
    except x509.verification.VerificationError:
        return False
    return True


def authorities_of(bundle: bytes) -> list[bytes]:
    found = x509.load_pem_x509_certificates(bundle)
    return [one.public_bytes(Encoding.PEM) for one in found]


def serial(certificate: bytes) -> int:
    return x509.load_pem_x509_certificate(certificate).serial_number


def put(folder: Path, identity: KeyPair) -> Files:
    """As a mounted Secret is replaced: all files at once."""
    version = folder / f"..{len(list(folder.iterdir()))}"
    version.mkdir()
    (version / "tls.crt").write_bytes(identity.certificate)
    (version / "tls.key").write_bytes(identity.key)
    link = folder / "..new"
    link.symlink_to(version)
    link.replace(folder / "..data")
    return Files(folder / "..data" / "tls.crt", folder / "..data" / "tls.key")
