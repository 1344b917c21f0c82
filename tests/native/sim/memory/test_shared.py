"""Memory and events that several processes know, multicast objects: the simulated driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.sim_box import Client, SimBox, machine, sim_box

PAGE = 2 << 20


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box(machine(capability=9)) as made:
        yield made


def shared(box: SimBox, exporter: Client, directory: Path, pages: int = 1) -> Client:
    """Another process that has imported what the exporter made under 'h'."""
    importer = box.client()
    importer("init()")
    path = str(directory / "s")
    importer(f"keep('listener', vm.listen({path!r})) and 0")
    assert exporter(f"keep('h', vm.create({pages} * vm.PAGE, shared=True))[0]") == 0
    exporter(f"vm.send({path!r}, vm.export(kept['h'][1]))")
    assert importer("keep('h', vm.take(vm.receive(kept['listener'])))[0]") == 0
    return importer


def test_an_imported_memory_shows_the_exporters_bytes_and_costs_nothing(
    box: SimBox, client: Client
) -> None:
    importer = shared(box, client, box.directory)
    for each in (client, importer):
        assert each(
            "[keep('at', vm.reserve(vm.PAGE)) * 0, vm.map_at(kept['at'], vm.PAGE, kept['h'][1]),"
            " vm.permit(kept['at'], vm.PAGE)]"
        ) == [0, 0, 0]

    assert client("vm.write(kept['at'], b'from the exporter')") == 0

    assert importer("vm.read(kept['at'], 17)") == "from the exporter"
    assert [process.bytes_now for process in box.gpus.processes()] == [PAGE, 0]
    assert box.pages() == 1


@pytest.mark.parametrize("end", ["release", "death"])
def test_when_the_exporter_lets_go_the_importer_pays(box: SimBox, client: Client, end: str) -> None:
    importer = shared(box, client, box.directory, pages=3)

    if end == "release":
        assert client("vm.release(kept['h'][1])") == 0
    else:
        client.kill()

    assert box.pages() == 3
    assert importer("vm.release(kept['h'][1])") == 0
    assert box.pages() == 0


def test_memory_imported_by_its_own_process_is_charged_once_and_kept_by_either(
    box: SimBox, client: Client
) -> None:
    client("keep('h', vm.create(vm.PAGE, shared=True)[1])")
    assert client("keep('i', vm.take(vm.export(kept['h'])))[0]") == 0
    assert box.pages() == 1

    assert client("vm.release(kept['h'])") == 0
    assert box.pages() == 1
    assert client("vm.release(kept['i'][1])") == 0
    assert box.pages() == 0


def test_only_what_was_made_to_be_shared_can_be_exported(client: Client) -> None:
    assert client("vm.export(vm.create(vm.PAGE)[1])") == -1


def test_memory_that_was_let_go_on_its_way_is_charged_to_who_imports_it(
    box: SimBox, client: Client
) -> None:
    client("keep('h', vm.create(vm.PAGE, shared=True)[1])")
    client("[keep('fd', vm.export(kept['h'])), vm.release(kept['h'])]")
    assert box.pages() == 0

    assert client("vm.take(kept['fd'])[0]") == 0

    assert box.pages() == 1


def test_a_multicast_object_costs_nothing_and_keeps_what_is_bound(
    box: SimBox, client: Client
) -> None:
    client("[keep('m', vm.multicast(4 * vm.PAGE, 2)[1]), vm.join(kept['m'], 0)]")
    assert box.pages() == 0
    client("keep('h', vm.create(vm.PAGE)[1])")

    assert client(
        "[vm.bind(kept['m'], kept['h'], vm.PAGE), vm.bind(kept['m'], kept['h'], vm.PAGE),"
        " vm.bind(kept['m'], kept['h'], vm.PAGE, vm.PAGE), vm.release(kept['h'])]"
    ) == [0, 1, 0, 0]

    assert box.pages() == 1
    assert client("vm.unbind(kept['m'], 0, vm.PAGE)") == 0
    assert box.pages() == 1
    assert client("vm.release(kept['m'])") == 0
    assert box.pages() == 0


def test_only_devices_of_the_team_are_bound_and_mapped_memory_by_its_address(
    box: SimBox, client: Client
) -> None:
    client("[keep('m', vm.multicast(vm.PAGE, 2)[1]), keep('at', vm.reserve(2 * vm.PAGE))]")
    client("vm.segment(kept['at'], vm.PAGE, 1)")

    assert client(
        "[vm.join(kept['m'], 0), vm.bind_at(kept['m'], kept['at'], vm.PAGE),"
        " vm.join(kept['m'], 1), vm.join(kept['m'], 1),"
        " vm.bind_at(kept['m'], kept['at'], vm.PAGE), vm.unmap(kept['at'], vm.PAGE)]"
    ) == [0, 1, 0, 1, 0, 0]

    assert box.pages(1) == 1
    assert client(
        "[vm.unbind(kept['m'], 0, vm.PAGE), vm.unbind(kept['m'], 1, vm.PAGE),"
        " vm.map_at(kept['at'], vm.PAGE, kept['m'])]"
    ) == [1, 0, 0]
    assert box.pages(1) == 0


def test_multicast_needs_a_gpu_that_has_it(box: SimBox) -> None:
    with sim_box(machine(capability=8)) as older:
        client = older.client()
        client("init()")

        assert client("vm.multicast(vm.PAGE)[0]") == 801


def test_memory_of_another_process_is_opened_with_its_contents_and_not_charged(
    box: SimBox, client: Client
) -> None:
    other = box.client()
    other("init()")
    client("[alloc(5000), vm.write(held[0] + 4090, b'across the page')]")
    code, handle = client("vm.ipc_handle(held[0])")

    assert code == 0
    assert other(f"keep('o', vm.ipc_open({handle!r}))[0]") == 0
    assert other("vm.read(kept['o'][1] + 4090, 15)") == "across the page"
    assert other("vm.write(kept['o'][1], b'and back')") == 0
    assert client("vm.read(held[0], 8)") == "and back"
    assert box.gpus.device_bytes(box.uuid) == 5000
    assert client("free()") == 0
    assert box.gpus.device_bytes(box.uuid) == 0


def test_memory_opened_twice_has_one_address_and_is_closed_twice(
    box: SimBox, client: Client
) -> None:
    other = box.client()
    other("init()")
    client("alloc(5000)")
    handle = client("vm.ipc_handle(held[0])")[1]

    first = other(f"vm.ipc_open({handle!r})")
    again = other(f"vm.ipc_open({handle!r}, 'cuIpcOpenMemHandle')")

    assert first == again
    assert other(f"cuda.cuMemFree_v2(word({first[1]}))") == 1
    assert other(f"[vm.ipc_close({first[1]}) for _ in range(3)]") == [0, 0, 1]


def test_a_handle_is_for_other_processes_and_while_the_exporter_lives(
    box: SimBox, client: Client
) -> None:
    other = box.client()
    other("init()")
    client("alloc(5000)")
    handle = client("vm.ipc_handle(held[0])")[1]

    assert client(f"vm.ipc_open({handle!r})[0]") == 201
    assert client("vm.ipc_handle(4096)[0]") == 1
    assert client("[alloc(5000, 'cuMemAllocAsync', 0), vm.ipc_handle(held[-1])[0]]") == [0, 1]
    client.kill()
    assert other(f"vm.ipc_open({handle!r})[0]") == 400
    assert other("vm.ipc_open('00' * 64)[0]") == 400


def test_an_event_of_another_process_happens_when_its_work_is_done(
    box: SimBox, client: Client
) -> None:
    other = box.client()
    other("init()")
    client("keep('e', vm.event()[1])")
    code, handle = client("vm.event_handle(kept['e'])")
    assert (code, other(f"keep('e', vm.event_open({handle!r}))[0]")) == (0, 0)
    assert other("vm.of_event('Query', kept['e'][1])") == 0  # never recorded

    client("[spin(2_000_000_000), vm.of_event('Record', kept['e'], None)]")

    assert other("vm.of_event('Query', kept['e'][1])") == 600
    assert other("seconds(\"vm.of_event('Synchronize', kept['e'][1])\") > 0.05")
    assert client("vm.of_event('Query', kept['e'])") == 0
    assert other("cuda.cuStreamWaitEvent(None, ctypes.c_void_p(kept['e'][1]), 0)") == 0
    assert client("vm.of_event('Destroy_v2', kept['e'])") == 0
    assert other("vm.of_event('Destroy_v2', kept['e'][1])") == 0


def test_only_events_made_for_it_are_known_to_other_processes(client: Client) -> None:
    assert client("[vm.event(4)[0], vm.event_handle(vm.event(2)[1])[0]]") == [1, 400]
    handle = client("vm.event_handle(vm.event()[1])[1]")
    assert client(f"[vm.event_open({handle!r})[0], vm.event_open('00' * 64)[0]]") == [201, 400]


def test_an_event_of_a_process_that_died_has_happened(box: SimBox, client: Client) -> None:
    other = box.client()
    other("init()")
    client("[keep('e', vm.event()[1]), spin(600_000_000_000)]")
    client("vm.of_event('Record', kept['e'], None)")
    handle = client("vm.event_handle(kept['e'])[1]")
    other(f"keep('e', vm.event_open({handle!r}))")
    assert other("vm.of_event('Query', kept['e'][1])") == 600

    client.kill()

    assert other("vm.of_event('Synchronize', kept['e'][1])") == 0
