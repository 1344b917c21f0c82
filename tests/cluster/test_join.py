"""Joining a cluster, and living without one."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from real_agent import API_RULES

from gpumanager.cluster.join import PATIENCE, Alone, Member, PodsOfEither, join
from gpumanager.kubelet.pods import PodsUnavailable, PodUID, PodView


class Source:
    """Pods, or a refusal."""

    def __init__(self, name: str) -> None:
        self.speaks = True
        self.asked = 0
        self.pod = PodView(PodUID(name), "default", name, "Running", False, {}, ())

    async def pods(self) -> tuple[PodView, ...]:
        self.asked += 1
        if not self.speaks:
            raise PodsUnavailable(self.pod.name, "refused")
        return (self.pod,)


async def found(either: PodsOfEither) -> str | None:
    try:
        (pod,) = await either.pods()
    except PodsUnavailable:
        return None
    return pod.name


async def test_the_api_server_is_asked_only_after_the_kubelet_refused_some_times() -> None:
    kubelet, server = Source("kubelet"), Source("server")
    either = PodsOfEither(kubelet, server)
    kubelet.speaks = False

    assert [await found(either) for _ in range(PATIENCE + 1)] == [None, None, "server", "server"]


async def test_the_kubelet_is_believed_again_as_soon_as_it_speaks() -> None:
    kubelet, server = Source("kubelet"), Source("server")
    either = PodsOfEither(kubelet, server)
    kubelet.speaks = False
    for _ in range(PATIENCE):
        await found(either)

    kubelet.speaks = True
    again = await found(either)
    kubelet.speaks = False

    assert (again, await found(either)) == ("kubelet", None)


async def test_where_neither_speaks_there_are_no_pods() -> None:
    kubelet, server = Source("kubelet"), Source("server")
    either = PodsOfEither(kubelet, server)
    kubelet.speaks = server.speaks = False

    assert [await found(either) for _ in range(PATIENCE + 1)] == [None] * (PATIENCE + 1)


async def test_a_node_without_an_api_server_says_so_once_and_lives(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    caplog.set_level("INFO")

    cluster = join(None, None)
    kubelet = Source("kubelet")

    assert isinstance(cluster, Alone)
    assert cluster.beside(kubelet) is kubelet
    await cluster.run(lambda: pytest.fail("nobody wants to know"))
    assert len(caplog.records) == 1


async def test_a_kubeconfig_leads_to_its_cluster(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        '{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:8080"}}],'
        '"contexts": [{"name": "x", "context": {"cluster": "c"}}], "current-context": "x"}'
    )

    cluster = join(path, "n1", "a=1", recycle=False)

    assert isinstance(cluster, Member)
    assert str(cluster.access) == "http://127.0.0.1:8080"


def test_the_rules_that_are_documented_are_those_the_real_node_is_tested_with() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    block = text.partition("```yaml\n")[2].partition("```")[0]

    def plain(rules: Any) -> set[tuple[str, str]]:
        return {(what, verb) for one in rules for what in one["resources"] for verb in one["verbs"]}

    assert plain(yaml.safe_load(block)["rules"]) == plain(API_RULES)
