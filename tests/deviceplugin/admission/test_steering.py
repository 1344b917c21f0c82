"""Which GPUs are preferred for a container, and which pods could be held at once, as tables."""

from gpumanager.deviceplugin.admission.steering import PreferenceCall, could_hold, steer
from gpumanager.deviceplugin.admission.transaction import Transaction
from gpumanager.deviceplugin.device_ledger import locate, on_gpus
from gpumanager.grants.grant import DevicePluginSource, Grant
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import AllocationID
from gpumanager.kube.pod import ContainerKind, PodView
from gpumanager.names import VCORE, VMEMORY
from tests.deviceplugin.admission.admission_node import BLOCKS, container, gpus, pod

LEDGER = Ledger(gpus(2))
THREE = gpus(3).gpus
INIT = ContainerKind.INIT

PODS: list[tuple[PodView, bool]] = [
    (pod("no GPU"), True),
    (pod("two shares of one GPU", container(60, 4), container(40, 12)), True),
    (pod("three shares of two GPUs", *[container(60, 4)] * 3), False),
    (pod("a share after an init container", container(200, 0, kind=INIT), container(200, 0)), True),
    (pod("an init container that is too large", container(300, 0, kind=INIT)), False),
    (pod("cores not understood", container(None, BLOCKS + 1)), True),
    (pod("memory not understood", container(300, None)), True),
    (pod("one not understood, one too large", container(None, 4), container(300, 0)), False),
]


def test_a_pod_could_be_held_if_all_its_app_containers_fit_at_once() -> None:
    books = LEDGER.books(())

    assert {one.name: could_hold(LEDGER, books, one) for one, _ in PODS} == {
        one.name: fits for one, fits in PODS
    }


def ids(resource: str, index: int) -> tuple[str, ...]:
    return tuple(i for i, gpu in LEDGER.ids.of(resource) if gpu.index == index)


def grant(name: str, named: int, *on: int, admission: str = "other", cores: int = 30) -> Grant:
    """named: the GPU of its IDs; on: those that it has."""
    source = DevicePluginSource(admission, ids(VCORE, named)[:cores], ids(VMEMORY, named)[:4])
    uuids = [THREE[index].uuid for index in on]
    return on_gpus(Grant(AllocationID(name), source), uuids, exclusive=cores >= 100)


def test_an_id_is_of_the_gpu_that_an_earlier_container_of_its_pod_has_for_it() -> None:
    first = ids(VCORE, 0)[:1]
    rows: dict[str, list[Grant]] = {
        "as named": [],
        "moved": [grant("a", 0, 1, admission="pod")],
        "of another pod": [grant("a", 0, 1)],
        "the named one of two": [grant("a", 0, 1, 0, admission="pod")],
        "the first of two, none of which is named": [grant("a", 0, 2, 1, admission="pod")],
    }
    ledger = Ledger(gpus(3))

    found = {what: locate(ledger, live, "pod", first) for what, live in rows.items()}

    assert found == {
        "as named": {THREE[0].uuid},
        "moved": {THREE[1].uuid},
        "of another pod": {THREE[0].uuid},
        "the named one of two": {THREE[0].uuid},
        "the first of two, none of which is named": {THREE[2].uuid},
    }


UNKNOWN = Transaction("pod", AllocationID("new"), 0.0, viewed=True)


def preferred(resource: str, size: int, *live: Grant) -> tuple[str, ...]:
    available = frozenset((*ids(resource, 0), *ids(resource, 1)))
    return steer(LEDGER, tuple(live), UNKNOWN, PreferenceCall(resource, size, available))[0]


def test_for_a_share_of_an_unknown_container_the_gpu_with_the_most_room_is_preferred() -> None:
    assert preferred(VCORE, 30, grant("a", 0, 0)) == ids(VCORE, 1)[:30]
    assert preferred(VMEMORY, 4, grant("a", 0, 0)) == ids(VMEMORY, 1)[:4]
    assert preferred(VMEMORY, 4, grant("a", 1, 1)) == ids(VMEMORY, 0)[:4]


def test_for_whole_gpus_of_an_unknown_container_gpus_that_nobody_has_are_preferred() -> None:
    assert preferred(VCORE, 100, grant("a", 0, 0)) == ids(VCORE, 1)
    assert preferred(VCORE, 100, grant("a", 1, 1)) == ids(VCORE, 0)
