"""Certificates of a webhook that runs: shared, rotated, given as files."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.scheduler.certificates.keeper import Files, Keeper
from gpumanager.scheduler.certificates.x509 import (
    CertificateTrouble,
    KeyPair,
    issue,
    make_authority,
)
from gpumanager.sim.cluster.objects import Key
from tests.scheduler.certificates.certificate_world import (
    CONFIGURATION,
    KINDS,
    NAMES,
    SECRET_KEY,
    Cluster,
    believes,
    put,
)

pytest_plugins = ["tests.scheduler.certificates.certificate_fixtures"]

YEAR = timedelta(days=365)


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
    found = await asyncio.gather(*(cluster.own().fetch(cluster.clock()) for _ in range(5)))

    assert len(set(found)) == 1
    assert len(set(cluster.bundles())) == 1


async def test_a_restart_serves_what_was_served_before(cluster: Cluster) -> None:
    async with cluster.replica() as first:
        before = await first.shown()
    async with cluster.replica() as second:
        assert await second.shown() == before


async def test_without_a_configuration_there_is_a_certificate_and_one_warning(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in KINDS:
        cluster.server.objects.remove(Key(kind, "", CONFIGURATION))
    source = cluster.own()

    first, second = [await source.fetch(cluster.clock()) for _ in range(2)]

    assert first == second
    assert len([one for one in caplog.records if "no webhook configuration" in one.message]) == 1


async def test_who_changes_a_configuration_at_the_same_moment_is_not_undone(
    cluster: Cluster,
) -> None:
    key = Key("mutatingwebhookconfigurations", "", CONFIGURATION)
    api = Meddling(cluster, key, {"metadata": {"labels": {"theirs": "kept"}}})

    made = await cluster.own(api).fetch(cluster.clock())

    assert all(believes(one, made.certificate, cluster.clock()) for one in cluster.bundles())
    assert cluster.server.objects.get(key)["metadata"]["labels"] == {"theirs": "kept"}


class Meddling:
    """Somebody else writes between our reading and our first writing."""

    def __init__(self, cluster: Cluster, key: Key, change: Any) -> None:
        self._api, self._cluster = cluster.api(), cluster
        self._key, self._change = key, change

    async def find(self, path: str) -> Any:
        return await self._api.find(path)

    async def create(self, path: str, body: Any) -> Any:
        return await self._api.create(path, body)

    async def patch(self, path: str, body: Any) -> Any:
        change, self._change = self._change, None
        if change:
            await self._cluster.server.change(self._key, change)
        return await self._api.patch(path, body)


async def test_a_damaged_secret_is_named_with_what_to_do_and_what_is_there_is_served_on(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.replica() as replica:
        before = await replica.shown()
        await cluster.server.change(SECRET_KEY, {"data": {"ca.crt": "bm90IG9uZQ=="}})

        await replica.keeper.refresh()
        await replica.keeper.refresh()

        assert await replica.shown() == before
    said = [one.message for one in caplog.records if "delete it" in one.message]
    assert len(said) == 1
    assert "secret kube-system/gpu-manager-webhook" in said[0]


async def test_while_the_api_server_is_away_what_is_there_is_served_on(cluster: Cluster) -> None:
    async with cluster.replica() as replica:
        before = await replica.shown()
        await cluster.server.stop()

        await replica.keeper.refresh()

        assert await replica.shown() == before
        await cluster.server.start()


async def test_what_is_refused_for_another_reason_than_a_conflict_is_said(cluster: Cluster) -> None:
    cluster.server.refuse(403, "Forbidden")

    with pytest.raises(ApiRefused, match="Forbidden"):
        await cluster.own().fetch(cluster.clock())


async def test_without_an_api_server_and_a_certificate_nothing_can_be_served(
    cluster: Cluster,
) -> None:
    await cluster.server.stop()

    with pytest.raises(ApiUnavailable):
        await cluster.own().fetch(cluster.clock())
    keeper = Keeper(cluster.own(), cluster.clock)
    await keeper.refresh()
    with pytest.raises(CertificateTrouble):
        keeper.context()
    await cluster.server.start()


async def test_files_that_do_not_go_together_yet_change_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    authority = make_authority(cluster.clock(), YEAR)
    first, second = (issue(authority, NAMES, cluster.clock(), YEAR) for _ in range(2))
    async with cluster.replica(put(tmp_path, first)) as replica:
        put(tmp_path, KeyPair(second.certificate, first.key))
        await replica.keeper.refresh()
        assert await replica.shown() == first.certificate

        put(tmp_path, second)
        await replica.keeper.refresh()
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

    await keeper.refresh()

    assert not keeper.first.is_set()
    assert [one for one in caplog.records if "ertificate" in one.message] != []
