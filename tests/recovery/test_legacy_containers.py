"""Which pods are looked for in gpu-manager's directories."""

from pathlib import Path

from gpumanager.legacy.sockets import legacy_containers
from tests.deviceplugin.admission.admission_node import Node, container, pod


async def test_the_settled_of_those_asked_for_with_the_limits_of_each_container(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    two = pod("two", container(30, 8, "a"), container(100, 0, "b"))
    promised = pod("promised", container(10, 1))
    other = pod("other", container(10, 1))
    await node.run(two)
    await node.run(other)
    await node.admit(promised)

    found = legacy_containers(node.allocator.node.journal, {two.uid, promised.uid, "alloc"})

    assert set(found) == {two.uid}
    assert {(legacy.pod.uid, legacy.pod.container) for legacy in found[two.uid]} == {
        (two.uid, "a"),
        (two.uid, "b"),
    }
    shares = {legacy.pod.container: legacy.limits for legacy in found[two.uid]}
    assert shares["a"] == node.limits(two, "a")
    assert shares["b"] == ()
