"""Memory and events that several processes know, multicast objects: the simulated driver."""

from tests.native.programs.sim_client import alloc, free, init, spin
from tests.native.programs.sim_client import held as had
from tests.native.programs.virtual_client import *
from tests.native.sim.program import on
from tests.native.sim_box import Client, SimBox

MACHINE = {"capability": 9}

assert init() == 0


def another(box: SimBox) -> Client:
    """Process with a context."""
    made = box.client()
    assert made("init()") == 0
    return made


def imported(box: SimBox, memory: int) -> Client:
    """Another process that has imported the memory under 'h'."""
    importer, path = another(box), f"{box.directory}/s"
    importer(f"keep('listener', vm.listen({path!r})) and 0")
    send(path, export(memory))
    assert importer("keep('h', vm.take(vm.receive(kept['listener'])))[0]") == 0
    return importer


def test_an_imported_memory_shows_the_exporters_bytes_and_costs_nothing(box: SimBox) -> None:
    memory, at = create(PAGE, shared=True)[1], reserve(PAGE)
    importer = imported(box, memory)
    assert importer(
        "[keep('at', vm.reserve(vm.PAGE)) * 0, vm.map_at(kept['at'], vm.PAGE, kept['h'][1]),"
        " vm.permit(kept['at'], vm.PAGE)]"
    ) == [0, 0, 0]
    assert [map_at(at, PAGE, memory), permit(at, PAGE)] == [0, 0]

    assert write(at, b"from the exporter") == 0

    assert importer("vm.read(kept['at'], 17)") == "from the exporter"
    assert [process.bytes_now for process in box.gpus.processes()] == [PAGE, 0]
    assert box.pages() == 1


def test_when_the_exporter_lets_go_the_importer_pays(box: SimBox) -> None:
    memory = create(3 * PAGE, shared=True)[1]
    importer = imported(box, memory)

    assert release(memory) == 0

    assert box.pages() == 3
    assert importer("vm.release(kept['h'][1])") == 0
    assert box.pages() == 0


def test_when_the_exporter_dies_the_importer_pays(box: SimBox) -> None:
    exporter, path = another(box), f"{box.directory}/s"
    with listen(path) as listener:
        exporter(f"vm.send({path!r}, vm.export(vm.create(3 * vm.PAGE, shared=True)[1]))")
        code, memory = take(receive(listener))

    exporter.kill()

    assert (code, box.pages()) == (0, 3)
    assert (release(memory), box.pages()) == (0, 0)


def test_memory_imported_by_its_own_process_is_charged_once_and_kept_by_either(
    box: SimBox,
) -> None:
    memory = create(PAGE, shared=True)[1]
    code, again = take(export(memory))

    assert (code, box.pages()) == (0, 1)
    assert (release(memory), box.pages()) == (0, 1)
    assert (release(again), box.pages()) == (0, 0)


def test_only_what_was_made_to_be_shared_can_be_exported() -> None:
    assert export(create(PAGE)[1]) == -1


def test_memory_that_was_let_go_on_its_way_is_charged_to_who_imports_it(box: SimBox) -> None:
    memory = create(PAGE, shared=True)[1]
    file = export(memory)
    assert (release(memory), box.pages()) == (0, 0)
    assert (take(file)[0], box.pages()) == (0, 1)


def test_a_multicast_object_costs_nothing_and_keeps_what_is_bound(box: SimBox) -> None:
    team = multicast(4 * PAGE, 2)[1]
    assert (join(team, 0), box.pages()) == (0, 0)
    memory = create(PAGE)[1]

    assert [bind(team, memory, PAGE, offset) for offset in (0, 0, PAGE)] == [0, 1, 0]
    assert (release(memory), box.pages()) == (0, 1)
    assert (unbind(team, 0, PAGE), box.pages()) == (0, 1)
    assert (release(team), box.pages()) == (0, 0)


def test_only_devices_of_the_team_are_bound_and_mapped_memory_by_its_address(box: SimBox) -> None:
    team, at = multicast(PAGE, 2)[1], reserve(2 * PAGE)
    segment(at, PAGE, 1)

    assert [join(team, 0), bind_at(team, at, PAGE)] == [0, 1]
    assert [join(team, 1), join(team, 1), bind_at(team, at, PAGE), unmap(at, PAGE)] == [0, 1, 0, 0]
    assert box.pages(1) == 1
    assert [unbind(team, 0, PAGE), unbind(team, 1, PAGE), map_at(at, PAGE, team)] == [1, 0, 0]
    assert box.pages(1) == 0


@on(cuda_version=13040)
def test_memory_is_bound_on_its_own_device_alone() -> None:
    team, memory = multicast(PAGE, 2)[1], create(PAGE)[1]
    assert [join(team, 0), join(team, 1)] == [0, 0]

    assert [bind_on(device, team, memory, PAGE) for device in (1, -1, 0)] == [1, 1, 0]


@on(capability=8)
def test_multicast_needs_a_gpu_that_has_it() -> None:
    assert multicast(PAGE)[0] == 801


def test_memory_of_another_process_is_opened_with_its_contents_and_not_charged(
    box: SimBox,
) -> None:
    other = another(box)
    assert [alloc(5000), write(had[0] + 4090, b"across the page")] == [0, 0]
    code, handle = ipc_handle(had[0])

    assert code == 0
    assert other(f"keep('o', vm.ipc_open({handle!r}))[0]") == 0
    assert other("vm.read(kept['o'][1] + 4090, 15)") == "across the page"
    assert other("vm.write(kept['o'][1], b'and back')") == 0
    assert read(had[0], 8) == "and back"
    assert box.gpus.device_bytes(box.uuid) == 5000
    assert free() == 0
    assert box.gpus.device_bytes(box.uuid) == 0


def test_memory_opened_twice_has_one_address_and_is_closed_twice(box: SimBox) -> None:
    other = another(box)
    assert alloc(5000) == 0
    handle = ipc_handle(had[0])[1]

    first = other(f"vm.ipc_open({handle!r})")

    assert first == other(f"vm.ipc_open({handle!r}, 'cuIpcOpenMemHandle')")
    assert other(f"cuda.cuMemFree_v2(word({first[1]}))") == 1
    assert other(f"[vm.ipc_close({first[1]}) for _ in range(3)]") == [0, 0, 1]


def test_a_handle_is_for_other_processes_and_while_the_exporter_lives(box: SimBox) -> None:
    exporter = another(box)
    assert exporter("alloc(5000)") == 0
    handle = exporter("vm.ipc_handle(held[0])")[1]

    assert exporter(f"vm.ipc_open({handle!r})[0]") == 201
    assert ipc_handle(4096)[0] == 1
    assert [alloc(5000, "cuMemAllocAsync", 0), ipc_handle(had[-1])[0]] == [0, 1]
    exporter.kill()
    assert [ipc_open(one)[0] for one in (handle, "00" * 64)] == [400, 400]


def test_an_event_of_another_process_happens_when_its_work_is_done(box: SimBox) -> None:
    other, mine = another(box), event()[1]
    code, handle = event_handle(mine)
    assert (code, other(f"keep('e', vm.event_open({handle!r}))[0]")) == (0, 0)
    assert other("vm.of_event('Query', kept['e'][1])") == 0  # never recorded

    assert [spin(500_000_000), of_event("Record", mine, None)] == [0, 0]

    assert other("vm.of_event('Query', kept['e'][1])") == 600
    assert other("seconds(\"vm.of_event('Synchronize', kept['e'][1])\") > 0.05")
    assert of_event("Query", mine) == 0
    assert other("cuda.cuStreamWaitEvent(None, ctypes.c_void_p(kept['e'][1]), 0)") == 0
    assert of_event("Destroy_v2", mine) == 0
    assert other("vm.of_event('Destroy_v2', kept['e'][1])") == 0


def test_only_events_made_for_it_are_known_to_other_processes() -> None:
    assert [event(4)[0], event_handle(event(2)[1])[0]] == [1, 400]
    handle = str(event_handle(event()[1])[1])
    assert [event_open(one)[0] for one in (handle, "00" * 64)] == [201, 400]


def test_an_event_of_a_process_that_died_has_happened(box: SimBox) -> None:
    other = another(box)
    other("[keep('e', vm.event()[1]), spin(600_000_000_000)]")
    other("vm.of_event('Record', kept['e'], None)")
    code, theirs = event_open(other("vm.event_handle(kept['e'])[1]"))
    assert [code, of_event("Query", theirs)] == [0, 600]

    other.kill()

    assert of_event("Synchronize", theirs) == 0
