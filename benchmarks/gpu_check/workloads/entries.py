"""Ask cuGetProcAddress for all names, versions and kinds of streams: `entries.py TABLE [RECORD]`.

TABLE: a file of JSON, {"exports": […], "hooks": {symbol: kind}}. With RECORD, of a bare driver: are
the answers its exports? The shim recognises them by that. They go there, one line per transition,
as tests/native/table/recorded has them. Else, behind the shim: which hooked functions are answered
with the driver's own all the same?
"""

import ctypes
import json
import re
import sys
from pathlib import Path

from say import say, shim_loaded

FUNCTION = re.compile("cu[A-Z]")
VARIANT = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
VERSIONS = (
    *(2000, 2010, 2020, 2030, 3000, 3010, 3020, 4000, 4010, 4020, 5000, 5050, 6000, 6050, 7000),
    *(7050, 8000, 9000, 9010, 9020, 10000, 10010, 10020, *range(11000, 11090, 10)),
    *(*range(12000, 12100, 10), *range(13000, 13060, 10)),
)
LEGACY, PER_THREAD = 1, 2
SHOWN = 20


class Asked:
    """A library's cuGetProcAddress."""

    def __init__(self, library):
        self._function = library.cuGetProcAddress_v2
        self._function.argtypes = (
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_uint64,
            ctypes.c_void_p,
        )

    def __call__(self, name, version, flags):
        pointer, status = ctypes.c_void_p(), ctypes.c_int()
        result = self._function(
            name.encode(), ctypes.byref(pointer), version, flags, ctypes.byref(status)
        )
        return pointer.value if result == 0 else None


def address(library, name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def addresses(library, names):
    return {address(library, name): name for name in names if hasattr(library, name)}


def transitions(asked, bases, exported):
    """Lines of the record, and questions whose answers are no export."""
    lines, foreign, answered = [], [], set()
    for base in bases:
        for flags in (LEGACY, PER_THREAD):
            last = None
            for version in VERSIONS:
                pointer = asked(base, version, flags)
                if pointer is not None:
                    answered.add(base)
                symbol = exported.get(pointer, "?") if pointer is not None else None
                if symbol == "?":
                    foreign.append([base, version, flags])
                if symbol is not None and symbol != last:
                    lines.append(f"{base} {flags} {version} {symbol}")
                last = symbol
    return lines, foreign, answered


def unhooked(library, driver, bases, exported, hooks):
    """Hooked functions for which another answer than the shim's own comes, and those exchanged."""
    shim = Asked(library)
    bypassed, exchanged = set(), set()
    for base in bases:
        for flags in (0, LEGACY, PER_THREAD):
            for version in VERSIONS:
                own = driver(base, version, flags)
                symbol = exported.get(own)
                if symbol in hooks:
                    hooked = own != address(library, symbol) == shim(base, version, flags)
                    (exchanged if hooked else bypassed).add(symbol)
    return bypassed, exchanged


def main(table, record=None):
    told = json.loads(Path(table).read_text())
    library = ctypes.CDLL("libcuda.so.1")
    bases = sorted({VARIANT.sub("", name) for name in told["exports"] if FUNCTION.match(name)})
    if record is not None:
        exported = addresses(library, told["exports"])
        lines, foreign, answered = transitions(Asked(library), bases, exported)
        head = "# Base name, flags (1 stands for 0 too), from this version on, symbol.\n"
        Path(record).write_text(head + "".join(f"{line}\n" for line in lines))
        say(
            names=len(bases), answered=len(answered), foreign=len(foreign), examples=foreign[:SHOWN]
        )
        return
    driver = ctypes.CDLL("libvcuda-real.so.1")
    exported = addresses(driver, told["exports"])
    hooked = {VARIANT.sub("", name) for name in told["hooks"]}
    bypassed, exchanged = unhooked(library, Asked(driver), sorted(hooked), exported, told["hooks"])
    say(shim=shim_loaded(), bypassed=sorted(bypassed), exchanged=len(exchanged))


if __name__ == "__main__":
    main(*sys.argv[1:])
