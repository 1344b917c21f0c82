"""A container has GPUs by one interface: a claim would hide the limits of its share."""

from pathlib import Path

import pytest

from gpumanager.names import VCORE, VMEMORY
from tests.dra.claim_node import ClaimNode


@pytest.fixture
async def node(tmp_path: Path) -> ClaimNode:
    found = ClaimNode(tmp_path)
    await found.restart()
    return found


def with_share(node: ClaimNode, pod: str, place: int = 0) -> None:
    """The container of this pod also asks for a share by device plugins."""
    container = node.api.pods["default", pod]["spec"]["containers"][place]
    container["resources"]["limits"] = {VCORE: "30", VMEMORY: "8"}


async def test_a_claim_of_a_container_that_has_a_share_is_refused(node: ClaimNode) -> None:
    claim = node.claim("a", node.share(0, 50))
    with_share(node, "a")

    said = await node.refused(claim)

    assert "container main of pod default/a asks for tencent.com/vcuda-core" in said
    assert "by one claim" in said
    assert node.driver.live() == ()


async def test_a_share_of_another_container_of_the_pod_is_no_reason(node: ClaimNode) -> None:
    claim = node.claim("a", node.share(0, 50))
    node.api.pods["default", "a"]["spec"]["containers"].append(
        {"name": "other", "resources": {"limits": {VCORE: "30", VMEMORY: "8"}}}
    )

    assert len(await node.prepare(claim)) == 1


async def test_amounts_of_nothing_are_no_share(node: ClaimNode) -> None:
    claim = node.claim("a", node.share(0, 50))
    with_share(node, "a")
    container = node.api.pods["default", "a"]["spec"]["containers"][0]
    container["resources"]["limits"] = {VCORE: 0, VMEMORY: "0"}

    assert len(await node.prepare(claim)) == 1
