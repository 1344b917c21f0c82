"""Arrays through the shim: charged what the driver takes, by every name and form of creating."""

import random
from typing import Any

import pytest

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import MIB
from tests.native.gpu_node import LIMIT, GpuNode, accounts
from tests.native.programs.array_words import BITS, CHANNELS, PLANAR
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces

PAGE = 2 * MIB
"""What the driver takes for an array, or for several small ones."""
SPARSE_PAGES = 4 * PAGE
"""By how much the books may have more than the driver: nobody tells in what page a small array
lies, and it is charged for the one it may be left in alone."""

PRELUDE = """
from tests.native.programs.array_words import *
driver, real = cuda(), ctypes.CDLL("libvcuda-real.so.1")
context = start(driver)
def books():
    return held(driver) - before
def both():
    '''What the container is charged and what the driver's own ledger says.'''
    return books(), held(real) - driver_before
before, driver_before = held(driver), held(real)
"""


@pytest.fixture
async def simulated(one_gpu: GpuNode) -> Container:
    return await one_gpu.container()


async def run(container: Container, script: str) -> dict[str, Any]:
    return await container.run(PRELUDE + script)


async def test_every_form_of_creating_is_charged_what_the_driver_takes_and_given_back(
    simulated: Container,
) -> None:
    told = await run(
        simulated,
        """
found = {}
for form in FORMS:
    code, array = create(driver, 1001, 701, form=form, kind=FLOAT, channels=2, levels=5)
    during = both()
    found[form] = (code, *during, destroy(driver, array, form), *both())
tell(**found)
""",
    )

    first = 3 * PAGE  # 1001 * 8 bytes in 704 rows
    flat = [0, first, first, 0, 0, 0]
    assert {form: told[form] for form in told if form != "cuMipmappedArrayCreate"} == dict.fromkeys(
        ("cuArrayCreate", "cuArrayCreate_v2", "cuArray3DCreate", "cuArray3DCreate_v2"), flat
    )
    code, charged, took, *after = told["cuMipmappedArrayCreate"]
    assert (code, after) == (0, [0, 0, 0])
    assert charged == took > first


@pytest.mark.parametrize(
    ("name", "version", "exact"),
    [
        ("cuArrayCreate", 2000, "cuArrayCreate"),
        ("cuArrayCreate", 12050, "cuArrayCreate_v2"),
        ("cuArray3DCreate", 2000, "cuArray3DCreate"),
        ("cuArray3DCreate", 12050, "cuArray3DCreate_v2"),
        ("cuMipmappedArrayCreate", 12050, "cuMipmappedArrayCreate"),
        ("cuArrayDestroy", 12050, "cuArrayDestroy"),
        ("cuMipmappedArrayDestroy", 12050, "cuMipmappedArrayDestroy"),
        ("cuMemAllocPitch", 2000, "cuMemAllocPitch"),
        ("cuMemAllocPitch", 12050, "cuMemAllocPitch_v2"),
    ],
)
async def test_the_driver_names_the_hook_of_each_form_by_version(
    simulated: Container, name: str, version: int, exact: str
) -> None:
    told = await run(
        simulated,
        f"""
code, pointer, status = entry(driver, {name!r}, {version})
tell(answer=(code, status), ours=pointer == address_of(driver.{exact}),
     drivers=pointer == address_of(real.{exact}))
""",
    )

    assert told == {"answer": [0, 0], "ours": True, "drivers": False}


async def test_what_get_proc_address_hands_out_charges_too(simulated: Container) -> None:
    told = await run(
        simulated,
        """
found = []
for form, name, version in (("cuArrayCreate", "cuArrayCreate", 2000),
                            ("cuArray3DCreate", "cuArray3DCreate", 2000),
                            ("cuArrayCreate_v2", "cuArrayCreate", 12050),
                            ("cuMipmappedArrayCreate", "cuMipmappedArrayCreate", 12050)):
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                            ctypes.c_uint)(entry(driver, name, version)[1])
    made = lambda at, asked, levels=1: call(at, asked, levels)
    code, array = create(driver, 512, 512, form=form, entry=made)
    found.append((code, *both(), destroy(driver, array, form), *both()))
tell(found=found)
""",
    )

    assert told["found"] == 4 * [[0, PAGE, PAGE, 0, 0, 0]]


async def test_arrays_are_refused_at_the_limit_to_the_page_and_the_program_lives_on(
    simulated: Container, gpu: SimulatedGpus
) -> None:
    told = await run(
        simulated,
        f"""
code, whole = create(driver, 64, {LIMIT // 64 // 2048}, 2048, flags=LAYERED)
beyond = create(driver, 1)[0]
small = [create(driver, 8, 8, form=form)[0] for form in FORMS]
plain = allocate(driver, 1)[0]
freed = destroy(driver, whole)
nearly, block = allocate(driver, {LIMIT - PAGE + 1})
too_tight = create(driver, 1)[0]
free(driver, block)
allocate(driver, {LIMIT - PAGE})
tell(code=code, beyond=beyond, small=small, plain=plain, freed=freed, nearly=nearly,
     too_tight=too_tight, fits=create(driver, 1)[0], both=both())
""",
    )

    assert (told["code"], told["beyond"], told["plain"]) == (0, 2, 2)
    assert told["small"] == [2, 2, 2, 2, 2]
    assert (told["freed"], told["nearly"], told["too_tight"], told["fits"]) == (0, 0, 2, 0)
    assert told["both"] == [LIMIT, LIMIT]
    (account,) = accounts(gpu)
    assert (account.bytes_peak, account.refused) == (LIMIT, 0)


async def test_every_format_is_charged_what_it_takes_and_at_least_that_if_the_driver_is_silent(
    simulated: Container,
) -> None:
    kinds = [(kind, CHANNELS.get(kind, 1)) for kind in BITS]

    told = await run(
        simulated,
        f"""
def figures(kind, channels):
    with existing(driver, 1000, 600, kind=kind, channels=channels):
        return both()
tell(found=[figures(kind, channels) for kind, channels in {kinds}], after=both())
""",
    )

    assert told["after"] == [0, 0]
    for (kind, _), (charged, took) in zip(kinds, told["found"], strict=True):
        assert took >= 1000 * 600 * BITS[kind] // 8
        if kind in PLANAR:  # the simulated driver takes no deferred mapping for these
            assert took <= charged <= 2 * took
        else:
            assert charged == took


async def test_arrays_that_get_their_memory_later_are_not_charged(simulated: Container) -> None:
    told = await run(
        simulated,
        f"""
allocate(driver, {LIMIT})
made = [create(driver, 4096, 4096, flags=flags, form=form, levels=3)
        for flags in (SPARSE, DEFERRED) for form in ("cuArray3DCreate_v2", MIPMAPPED)]
tell(made=[code for code, _ in made], both=both(), destroyed=[
    destroy(driver, made[n][1], (MIPMAPPED if n % 2 else "")) for n in range(4)], after=both())
""",
    )

    assert told["made"] == told["destroyed"] == [0, 0, 0, 0]
    assert told["both"] == told["after"] == [LIMIT, LIMIT]


async def test_the_drivers_own_refusals_stand_and_charge_nothing(simulated: Container) -> None:
    told = await run(
        simulated,
        """
bad = [create(driver, 8, 8, channels=3, form=form)[0] for form in FORMS]
null = [getattr(driver, form)(ctypes.byref(ctypes.c_void_p()), None, 1) for form in FORMS]
flat = FORMS["cuArrayCreate_v2"](8, 8, 1, 1)
array = create(driver, 8, 8)[1]
tell(bad=bad, null=null, nowhere=driver.cuArrayCreate_v2(None, ctypes.byref(flat)),
     unknown=destroy(driver, ctypes.c_void_p(4096)), other=destroy(driver, array, MIPMAPPED),
     held=both(), right=destroy(driver, array), twice=destroy(driver, array), after=both(),
     context=(driver.cuCtxSetCurrent(None), create(driver, 8, 8)[0]))
""",
    )

    assert told["bad"] == told["null"] == [1, 1, 1, 1, 1]
    assert (told["nowhere"], told["unknown"], told["other"]) == (1, 400, 400)
    assert (told["held"], told["right"], told["twice"]) == ([PAGE, PAGE], 0, 400)
    assert (told["after"], told["context"]) == ([0, 0], [0, 201])


async def test_rows_of_the_first_interface_are_charged_as_the_driver_pads_them(
    simulated: Container,
) -> None:
    told = await run(
        simulated,
        f"""
def rows(height):
    at, pitch = ctypes.c_uint32(), ctypes.c_uint32()
    return driver.cuMemAllocPitch(ctypes.byref(at), ctypes.byref(pitch), 500, height, 4), at
code, at = rows(1000)
during = both()
tell(code=code, during=during, freed=driver.cuMemFree(at), after=both(),
     beyond=rows({LIMIT} // 512 + 1)[0])
""",
    )

    assert told == {"code": 0, "during": [PAGE, PAGE], "freed": 0, "after": [0, 0], "beyond": 2}


async def test_host_memory_is_never_charged_nor_refused_when_the_limit_is_reached(
    simulated: Container, gpu: SimulatedGpus
) -> None:
    told = await run(
        simulated,
        f"""
allocate(driver, {LIMIT})
at, room = ctypes.c_void_p(), ctypes.create_string_buffer(1 << 16)
by, size = ctypes.byref(at), ctypes.c_size_t({MIB})
codes = [driver.cuMemAllocHost_v2(by, size), driver.cuMemFreeHost(at),
         driver.cuMemHostAlloc(by, size, 0), driver.cuMemFreeHost(at),
         driver.cuMemHostRegister_v2(room, ctypes.c_size_t(1 << 16), 0),
         driver.cuMemHostUnregister(room)]
tell(codes=codes, both=both(), denied=allocate(driver, 1)[0])
""",
    )

    assert told == {"codes": [0] * 6, "both": [LIMIT, LIMIT], "denied": 2}
    assert accounts(gpu)[0].bytes_peak == LIMIT


OLD_DRIVER = """
from tests.native.programs.array_words import *
driver = cuda()
driver.cuInit(0)
before = held(driver)
code, array = create(driver, 1000, 600, form="cuArrayCreate_v2")
charged = held(driver) - before
calls = driver.stand_in_calls(b"cuArray3DCreate_v2")
tell(code=code, charged=charged, destroyed=destroy(driver, array), after=held(driver) - before,
     calls=calls, huge=create(driver, 1 << 40, 1 << 40)[0],
     fits=[create(driver, 4096, 4096)[0] for _ in range(5)])
"""


async def test_a_driver_that_cannot_be_asked_is_charged_for_at_most_what_it_may_take(
    container: Container,
) -> None:
    told = await container.run(OLD_DRIVER)

    assert told["charged"] == PAGE  # rows of 512 bytes, blocks of 256 rows, in a page with others
    assert (told["code"], told["destroyed"], told["after"], told["huge"]) == (0, 0, 0, 2)
    assert told["fits"] == [0, 0, 0, 0, 2]
    assert told["calls"] == 2  # the twin that was refused, and the array


async def test_an_array_is_charged_once_although_the_driver_calls_itself(
    plain_container: Container,
) -> None:
    assert (await plain_container.run(OLD_DRIVER))["charged"] == PAGE


HISTORY = """
import random
chance, alive, codes = random.Random({seed}), [], set()
kinds = [(1, 1), (32, 4), (16, 2), (145, 1), (157, 4), (194, 4), (3, 2)]
def one():
    kind, channels = chance.choice(kinds)
    form = chance.choice(list(FORMS))
    depth = chance.choice([0, 0, 6, 30]) if "3D" in form or form == MIPMAPPED else 0
    side = 4 * chance.randrange(1, 700)
    flags = chance.choice([0, LAYERED, CUBEMAP if depth == 6 else 0]) if depth else 0
    flags |= chance.choice([0, 0, 0, DEFERRED]) if depth else 0
    code, array = create(driver, side, side, depth, form=form, kind=kind, channels=channels,
                         flags=flags, levels=chance.randrange(12))
    codes.add(code)
    if code == SUCCESS:
        alive.append((array, form))
def plain():
    code, address = allocate(driver, chance.randrange(1, {MIB} * 64))
    codes.add(code)
    if code == SUCCESS:
        alive.append((address, None))
def end():
    thing, form = alive.pop(chance.randrange(len(alive)))
    assert (free(driver, thing) if form is None else destroy(driver, thing, form)) == SUCCESS
wrong = []
for step in range(600):
    chance.choice([one, one, plain, end if alive else one, end if alive else plain])()
    charged, took = both()
    if not 0 <= charged - took <= {SPARSE_PAGES}:
        wrong.append((step, both()))
while alive:
    end()
tell(wrong=wrong[:3], codes=sorted(codes), after=both())
"""


@pytest.mark.parametrize("seed", random.Random(4).sample(range(10**6), 3))
async def test_whatever_is_made_and_destroyed_the_books_are_the_drivers_ledger_but_for_sparse_pages(
    simulated: Container, gpu: SimulatedGpus, manager: VirtualManager, seed: int
) -> None:
    script = HISTORY.replace("{seed}", str(seed)).replace("{MIB}", str(MIB))

    told = await run(simulated, script.replace("{SPARSE_PAGES}", str(SPARSE_PAGES)))

    assert told == {"wrong": [], "codes": [0, 2], "after": [0, 0]}
    (account,) = accounts(gpu)
    assert LIMIT - 512 * MIB < account.bytes_peak <= LIMIT
    (usage,) = manager.usage(AllocationID("one")).devices
    assert usage.peak <= LIMIT
    assert 0 <= usage.peak - account.bytes_peak <= SPARSE_PAGES
