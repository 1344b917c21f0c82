"""Certificates are rotated under callers that never stop calling: no call fails.

OpenSSL believes here as an API server does, by the `caBundle`, the name and the signatures; only
the time is not looked at, which is the real one and not the clock's.
"""

import asyncio
import json
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from gpumanager.scheduler.certificates.keeper import Files
from gpumanager.scheduler.certificates.x509 import issue, make_authority
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.service import Webhook
from tests.scheduler.certificates.certificate_world import (
    HOST,
    NAMES,
    Cluster,
    Replica,
    authorities_of,
    put,
    serial,
)
from tests.scheduler.webhook.review_texts import pod, review

pytest_plugins = ["tests.scheduler.certificates.certificate_fixtures"]

YEAR: Final = timedelta(days=365)
MINUTES: Final = timedelta(minutes=10)
NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, which the ssl module has no name for."""
ROUTES: Final = Webhook(AdmissionPolicy()).routes()


class Caller:
    """Asks about pods, on a connection that stays or on a new one each time."""

    def __init__(self, replica: Replica, bundle: Callable[[], bytes], *, stays: bool) -> None:
        self.answered = 0
        self.connections = 0
        self._port = replica.served.port
        self._bundle = bundle
        self._stays = stays
        self._more = asyncio.Event()

    async def run(self) -> None:
        """Fails with the first call that does."""
        while True:
            reader, writer = await self._connect()
            try:
                await self._ask(reader, writer)
                while self._stays:
                    await self._ask(reader, writer)
            finally:
                writer.transport.abort()

    async def goes_on(self) -> None:
        """Returns when it was answered twice more, so one call began after this."""
        before = self.answered
        while self.answered < before + 2:
            self._more.clear()
            await self._more.wait()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cadata=self._bundle().decode())
        context.verify_flags |= NO_CHECK_TIME
        self.connections += 1
        return await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=context, server_hostname=HOST
        )

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b'"allowed": true' in body
        self.answered += 1
        self._more.set()


def _request() -> bytes:
    body = json.dumps(review(pod())).encode()
    fields = f"Host: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"POST /validate HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body


REQUEST: Final = _request()


async def test_a_year_of_rotation_fails_no_call(cluster: Cluster) -> None:
    """Two replicas share their certificates; the API server knows a bundle some minutes late."""
    serials, authorities = set[int](), set[bytes]()
    async with cluster.replica(routes=ROUTES) as one, cluster.replica(routes=ROUTES) as other:
        known = cluster.bundles()
        kinds = [(replica, stays) for replica in (one, other) for stays in (False, True)]
        callers = [Caller(replica, lambda: known[0], stays=stays) for replica, stays in kinds]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(caller.run()) for caller in callers]
            for pause in (timedelta(days=30), MINUTES) * 14:
                known = cluster.bundles()
                cluster.clock.move(seconds=pause.total_seconds())
                for replica in (one, other):
                    await replica.keeper.refresh()
                    await asyncio.gather(*(caller.goes_on() for caller in callers))
                serials.add(serial(await one.shown()))
                authorities.update(authorities_of(known[0]))
            for task in tasks:
                task.cancel()

    assert len(serials) > 4
    assert len(authorities) > 1
    assert [caller.connections for caller in callers[1::2]] == [1, 1]
    assert min(caller.connections for caller in callers[::2]) > 56


async def test_files_that_are_replaced_again_and_again_fail_no_call(
    cluster: Cluster, tmp_path: Path
) -> None:
    authority = make_authority(cluster.clock(), YEAR)

    def another() -> Files:
        return put(tmp_path, issue(authority, NAMES, cluster.clock(), YEAR))

    async with cluster.replica(another(), ROUTES) as replica:
        callers = [
            Caller(replica, lambda: authority.certificate, stays=stays) for stays in (False, True)
        ]
        shown = set[bytes]()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(caller.run()) for caller in callers]
            for _ in range(5):
                another()
                await replica.keeper.refresh()
                await asyncio.gather(*(caller.goes_on() for caller in callers))
                shown.add(await replica.shown())
            for task in tasks:
                task.cancel()

    assert len(shown) == 5
