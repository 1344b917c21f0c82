"""The benchmark of the whole agent: it runs, and says each of its figures."""

import re

import agent
import pytest

from gpumanager.sim import host

pytestmark = pytest.mark.namespaces

SAID = {
    r"ListAndWatch, tencent.com/vcuda-\w+: \d+,\d{3} bytes": 2,
    r"  first list after dialling +median +[\d.]+ ms .* n 2$": 2,
    r"from an Xid to the list, .* n 15$": 2,
    r"resident, 3 containers: +[\d.]+ MiB": 1,
    r"resident, 4 pods later: +[\d.]+ MiB": 1,
    r"4 pods came and went": 1,
}


async def test_each_figure_is_measured_and_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "SHORT", host.SHORT)  # to have it back: the benchmark goes to memory
    monkeypatch.setattr(agent, "all_gone", later)

    await agent.main(["--lists=2", "--containers=3", "--cycles=4"])

    said = capsys.readouterr().out
    for pattern, times in SAID.items():
        assert len(re.findall(f"^{pattern}", said, re.MULTILINE)) == times, pattern


async def later(_node: object) -> None:
    """The agent's grace is half a minute."""
