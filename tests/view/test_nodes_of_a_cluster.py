"""Nodes of the extender's document, as `top` shows them: what is granted, not what is used."""

from typing import Any

from gpumanager.view.figures import of_percent
from gpumanager.view.node import read_node

GIB = 1 << 30


def gpu(index: int, **more: Any) -> dict[str, Any]:
    found = {"index": index, "uuid": f"GPU-{index}", "model": "T4", "healthy": True}
    return {**found, "containers": 1, "memory_bytes": 16 * GIB, "memory_granted_bytes": GIB,
            "cores_granted_percent": 60, **more}  # fmt: skip


def pod(name: str, *shares: tuple[int, int], claim: str | None = None) -> dict[str, Any]:
    """shares: index of the GPU and percent of its time."""
    gpus = [
        {"index": one, "uuid": f"GPU-{one}", "share_granted_percent": percent,
         "memory_limit_bytes": GIB}
        for one, percent in shares
    ]  # fmt: skip
    return {"namespace": "a", "pod": name, "claim": claim, "gpus": gpus or None}


NODE = {
    "node": "node-a",
    "trouble": "",
    "gpus": [gpu(0), gpu(1, healthy=False)],
    "containers": [
        pod("one", (0, 60)), pod("two", (0, 100), (1, 100)),
        pod("mixed", (0, 30), (1, 60), claim="c"), pod("unknown"),
    ],
}  # fmt: skip


def test_pods_stand_on_the_gpus_that_they_have() -> None:
    node = read_node(NODE, "1.2.3")

    assert (node.node, node.version) == ("node-a", "1.2.3")
    assert [gpu.healthy for gpu in node.gpus] == [True, False]
    shares = [
        [(one.short, device.share_granted_percent) for one, device in node.on(gpu)]
        for gpu in node.gpus
    ]
    assert shares == [
        [("a/mixed", 30), ("a/one", 60), ("a/two", 100)],
        [("a/mixed", 60), ("a/two", 100)],
    ]


def test_what_the_extender_does_not_know_is_a_dash() -> None:
    node = read_node(NODE)
    _, row = node.on(node.gpus[0])[0]

    assert (row.memory_used_bytes, row.share_percent, row.memory_refusals) == (None, None, None)
    assert of_percent(row.taken, row.share_granted_percent) == "-/30%"
