"""What the simulated driver says of a function, and which launches of it it takes."""

import ctypes
import struct
from dataclasses import dataclass

from tests.native.programs.sim_client import cuda, init

MACHINE = {"cuda_version": 12050}
MAX_THREADS, SHARED, CONSTANTS, LOCAL, REGISTERS, DYNAMIC, CARVEOUT = 0, 1, 2, 3, 4, 8, 9
TOLD = (MAX_THREADS, SHARED, CONSTANTS, LOCAL, REGISTERS, DYNAMIC)
PROGBITS, SYMTAB, STRTAB, NOBITS = 1, 2, 3, 8
HEADER, SECTION = 64, 64

assert init() == 0


@dataclass(frozen=True, slots=True)
class Section:
    """One section; size: of one without bits."""

    name: str
    content: bytes = b""
    kind: int = PROGBITS
    size: int = 0
    number: int = 0  # sh_info
    link: int = 0


def entry(tag: int, *words: int) -> bytes:
    """One entry of .nv.info whose value follows it."""
    value = struct.pack(f"<{len(words)}I", *words)
    return struct.pack("<BBH", 4, tag, len(value)) + value


def elf(sections: list[Section]) -> bytes:
    """A 64-bit ELF file; the first section has all names, of sections and of symbols."""
    names = b"\0" + b"".join(section.name.encode() + b"\0" for section in sections)
    sections = [Section(".strtab", names, STRTAB), *sections[1:]]
    content, table = b"", b"\0" * SECTION
    for section in sections:
        head = names.index(section.name.encode() + b"\0"), section.kind, 0, 0
        where = HEADER + len(content), len(section.content) or section.size
        table += struct.pack("<IIQQQQIIQQ", *head, *where, section.link, section.number, 1, 0)
        content += section.content
    count = len(sections) + 1
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    start = HEADER + len(content)
    fixed = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, start, 75, 64, 0, 0, SECTION, count, 1)
    return ident + fixed + content + table


def cubin(*, registers: int, info: bytes = b"", module_info: bytes = b"") -> bytes:
    """One function, `first`, with 400 bytes of static shared memory and 80 of constants."""
    name = len("\0.strtab\0.symtab\0.text.")  # a name may be the end of another
    symbols = bytes(24) + struct.pack("<IBBHQQ", name, 0x12, 0, 3, 0, 16)
    return elf(
        [
            Section(".strtab"),
            Section(".symtab", symbols, SYMTAB, link=1),
            Section(".text.first", bytes(16), number=registers << 24),
            Section(".nv.shared.first", kind=NOBITS, size=400),
            Section(".nv.constant3", bytes(80)),
            Section(".nv.info", module_info),
            Section(".nv.info.first", info),
        ]
    )


def function(image: bytes, name: str = "first") -> ctypes.c_void_p:
    module, found = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(found), module, name.encode()) == 0
    return found


def attributes(of: ctypes.c_void_p, *numbers: int) -> list[int]:
    values = [ctypes.c_int() for _ in numbers]
    for number, value in zip(numbers, values, strict=True):
        assert cuda.cuFuncGetAttribute(ctypes.byref(value), number, of) == 0
    return [value.value for value in values]


def test_a_function_says_what_its_cubin_says() -> None:
    image = cubin(
        registers=57,
        info=struct.pack("<BBH", 3, 0x19, 0x160) + entry(0x05, 128, 2, 1),
        module_info=entry(0x11, 1, 4000) + entry(0x12, 1, 4008) + entry(0x12, 9, 70_000),
    )

    assert attributes(function(image), *TOLD) == [256, 400, 80, 4008, 57, 49152 - 400]


def test_registers_may_stand_in_the_table_and_bound_the_threads_of_a_block() -> None:
    found = function(cubin(registers=0, module_info=entry(0x2F, 1, 128)))

    assert attributes(found, *TOLD) == [512, 400, 80, 0, 128, 49152 - 400]


def test_of_any_other_code_plausible_figures_are_told() -> None:
    for image, name in ((b"x", "first"), (cubin(registers=57), "other"), (b"\x7fEL", "first")):
        assert attributes(function(image, name), *TOLD) == [1024, 0, 0, 0, 32, 49152]


def test_attributes_that_can_be_set_are_kept() -> None:
    found = function(cubin(registers=16))
    assert attributes(found, DYNAMIC, CARVEOUT) == [49152 - 400, -1]
    assert cuda.cuFuncSetAttribute(found, DYNAMIC, 65536) == 0
    assert cuda.cuFuncSetAttribute(found, CARVEOUT, 50) == 0
    assert attributes(found, DYNAMIC, CARVEOUT) == [65536, 50]


def test_a_launch_beyond_the_documented_limits_is_refused() -> None:
    found, most = function(cubin(registers=128)), 2**31 - 1
    for grid, block, shared, answer in (
        ((most, 65535, 65535), (1, 1, 1), 0, 0),
        ((most + 1, 1, 1), (1, 1, 1), 0, 1),
        ((1, 65536, 1), (1, 1, 1), 0, 1),
        ((1, 1, 65536), (1, 1, 1), 0, 1),
        ((1, 0, 1), (1, 1, 1), 0, 1),
        ((1, 1, 1), (8, 1, 64), 0, 0),
        ((1, 1, 1), (0, 1, 1), 0, 1),
        ((1, 1, 1), (1, 1, 65), 0, 1),  # no more than 64 threads deep
        ((1, 1, 1), (1025, 1, 1), 0, 1),  # more than any block may have
        ((1, 1, 1), (32, 32, 2), 0, 1),
        ((1, 1, 1), (513, 1, 1), 0, 701),  # more than there are registers for
        ((1, 1, 1), (512, 1, 1), 49152 - 400, 0),
        ((1, 1, 1), (512, 1, 1), 49152 - 399, 1),
    ):
        shape = [ctypes.c_uint(extent) for extent in (*grid, *block)]
        assert cuda.cuLaunchKernel(found, *shape, shared, None, None, None) == answer, (grid, block)


def test_hints_about_caches_and_marks_for_a_profiler_are_taken() -> None:
    found = function(b"text")

    assert cuda.cuFuncSetCacheConfig(found, 1) == 0
    assert [cuda.cuKernelSetCacheConfig(found, 1, device) for device in (0, 7)] == [0, 101]
    assert [cuda.cuProfilerStart(), cuda.cuProfilerStop()] == [0, 0]
