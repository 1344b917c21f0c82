"""The journal as a log: lines that say how it was, then a line for each change. Pure.

    9c41f2e0 0 {"kept": 2, "version": 3}        what follows begins with two grants
    51b0a7d3 1 {"drop": [], "put": [{"id": "7f…", "shares": [["GPU-1f3a…", 30, 8]], …}]}
    0e6612aa 2 {"drop": [], "put": [{…}]}
    c9d35b41 3 {"drop": ["7f…"], "put": []}     and then a line for every change

Each line has a checksum over the rest of it, and a number one higher than the line before. A line
is on the disk before the next is begun, so only the last can be half there; it was never
answered to anybody, and is left out. Anything else that does not add up is damage, never skipped.
What lies beyond the last line are empty lines: room that the file has on the disk already.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpumanager.grants.grant import Grant
from gpumanager.grants.journal import Journal, differences
from gpumanager.grants.journal_text import (
    UNREADABLE,
    Malformed,
    decode_document,
    dump,
    grant_of,
    record,
)
from gpumanager.ids import AllocationID

VERSION: Final = 3
READABLE: Final = (2, VERSION)
"""Version 2 had other records in the same lines."""
FILL: Final = b"\n"


@dataclass(frozen=True, slots=True)
class JournalChange:
    """From one journal to the next: these are so now, those are forgotten."""

    put: tuple[Grant, ...] = ()
    drop: tuple[AllocationID, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.drop)


@dataclass(frozen=True, slots=True)
class Log:
    """What a file's contents say. torn: its last line is half there, and left out."""

    journal: Journal = field(default_factory=Journal)
    torn: bool = False


def change(before: Journal, after: Journal) -> JournalChange:
    """Return what has changed; grants are never altered, so those kept are the same objects."""
    old, new = differences(before, after)
    drop = (one.id for one in old if one.id not in after.grants)
    return JournalChange(tuple(new), tuple(drop))


def line(number: int, what: JournalChange) -> bytes:
    """Return one line of the log."""
    return _line(number, {"put": [record(a) for a in what.put], "drop": list(what.drop)})


def opening(journal: Journal) -> tuple[bytes, int]:
    """Return the lines of a new log that begins with `journal`, and the number of the next."""
    kept = journal.grants.values()
    lines = [_line(0, {"version": VERSION, "kept": len(kept)})]
    lines += (line(number, JournalChange((one,))) for number, one in enumerate(kept, 1))
    return b"".join(lines), len(lines)


def read(contents: bytes) -> Log:
    """Return the journal in a file, be it a log or an older form. Raises Malformed."""
    if contents.lstrip().startswith((b"{", b"[")):
        return Log(decode_document(contents, VERSION))
    whole = list(_whole(contents))
    if not whole:
        raise Malformed("not a journal (its first line is none of ours)")
    kept = _kept(whole[0][0])
    rest = contents[whole[-1][1] :].strip(FILL)
    if len(whole) <= kept:
        raise Malformed(f"line {len(whole) + 1} of the {kept + 1} it begins with is damaged")
    if rest and any(_parse(text) for text in rest.split(FILL)):
        raise Malformed(f"line {len(whole) + 1} is damaged, and whole lines follow it")
    return Log(_replayed(text for text, _ in whole[1:]), torn=bool(rest))


def salvage(contents: bytes) -> Journal:
    """Return what is whole in a damaged log; of a grant that was dropped that may be lost."""
    found = (_parse(text) for text in contents.split(FILL) if text)
    texts = [text for _, text in filter(None, found)]
    return _replayed(text for text in texts if '"put"' in text)


def _whole(contents: bytes) -> Iterator[tuple[str, int]]:
    """Yield the lines from the first to the last that follows without a gap, and their ends."""
    start, number = 0, 0
    while (end := contents.find(FILL, start)) > start:
        parsed = _parse(contents[start:end])
        if parsed is None or parsed[0] != number:
            return
        yield parsed[1], end + 1
        start, number = end + 1, number + 1


def _parse(text: bytes) -> tuple[int, str] | None:
    """Return number and contents of a line, if it is whole."""
    checksum, _, rest = text.partition(b" ")
    number, _, document = rest.partition(b" ")
    if checksum != _checksum(rest) or not number.isdigit():
        return None
    return int(number), document.decode()


def _line(number: int, document: Mapping[str, Any]) -> bytes:
    rest = f"{number} {dump(document)}".encode()
    return _checksum(rest) + b" " + rest + FILL


def _checksum(rest: bytes) -> bytes:
    return b"%08x" % zlib.crc32(rest)


def _kept(text: str) -> int:
    """Return how many grants the log begins with."""
    try:
        head = json.loads(text)
        version, kept = int(head["version"]), int(head["kept"])
    except UNREADABLE as error:
        raise Malformed(f"not a journal ({type(error).__name__}: {error})") from error
    if version not in READABLE:
        raise Malformed(f"version {version}; this agent knows up to {VERSION}")
    return kept


def _replayed(texts: Iterator[str]) -> Journal:
    kept: dict[AllocationID, Grant] = {}
    try:
        for text in texts:
            document = json.loads(text)
            kept |= {a.id: a for a in map(grant_of, document["put"])}
            for name in document["drop"]:
                kept.pop(AllocationID(name), None)
    except Malformed:
        raise
    except UNREADABLE as error:
        raise Malformed(f"not a journal ({type(error).__name__}: {error})") from error
    return Journal(kept)
