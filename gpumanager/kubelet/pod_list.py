"""A list of pods, read as it comes: one pod at a time, and none again that has not changed.

A tenant may make pods with 250 KB of annotations each, so that the list of a node is tens of MB. Of
it only the pod that is being read is in memory, and of a pod that was read what `read` makes of it
and a digest. Between two looks few pods change: one that has the bytes it had is not read again.

A list that is laid out in any other way than expected is read as a whole, if it is small.
"""

import hashlib
import json
import re
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

BEGIN: Final = 128
"""Bytes by which a pod is looked up: its name is among them. Whatever is shorter, or begins like
another, is read anew."""
FRAME_MOST: Final = 64 << 10
"""Bytes of a list before its pods, and behind them."""
WHOLE_MOST: Final = 1 << 20
POD_MOST: Final = 16 << 20
"""Bytes of one pod: etcd takes 1.5 MiB of an object, the kubelet 10 MiB of a static pod's file. A
list with a larger one is not believed: a pod that is left out would look as if it were gone."""

_ITEMS: Final = re.compile(rb'"items"\s*:\s*\[')
_STRUCTURE: Final = re.compile(rb'[{}"]')
_IN_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SPACE: Final = b" \t\r\n"


class _Unusual(Exception):
    """It may be a list, of another layout."""


@dataclass(frozen=True, slots=True)
class _Known(Generic[T]):
    """An item of the last list: its bytes, and what was read of them."""

    size: int
    digest: bytes
    value: T


class PodList(Generic[T]):
    """read: a pod of its JSON object. The last list's pods are known."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._known: dict[bytes, _Known[T]] = {}

    async def parse(self, chunks: AsyncIterable[bytes]) -> tuple[T, ...]:
        """Parse a list. Raises ValueError, and what `chunks` and `read` raise."""
        text = _Text(chunks)
        try:
            found, known = await self._piecemeal(text)
        except _Unusual:
            items = json.loads(await text.whole())["items"] or []
            return tuple(map(self._read, items))
        self._known = known
        return found

    async def _piecemeal(self, text: "_Text") -> tuple[tuple[T, ...], dict[bytes, _Known[T]]]:
        head = await text.head()
        known, found = dict[bytes, _Known[T]](), list[T]()
        mark = await text.mark()
        while mark != b"]":
            if mark != b"{":
                raise _Unusual
            begin = await text.peek(BEGIN)
            item = self._known.get(begin)
            if item is None or not await text.take_same(item.size, item.digest):
                body = await text.take_object()
                item = _Known(len(body), _digest(body), self._read(json.loads(body)))
            known[begin] = item
            found.append(item.value)
            mark = await text.mark()
            if mark == b",":
                text.skip()
                mark = await text.mark()
                if mark == b"]":  # no list ends with a comma
                    raise _Unusual
            elif mark != b"]":
                raise _Unusual
        if not _is_frame(head + await text.tail()):
            raise _Unusual
        return tuple(found), known


class _Text:
    """What has come and is not taken yet. `whole`: all of it, while it is small."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = aiter(chunks)
        self._rest = bytearray()
        self._first: list[bytes] = []
        self._size = 0

    async def head(self) -> bytes:
        """Take the text up to the first pod."""
        while not (found := _ITEMS.search(self._rest)):
            if len(self._rest) > FRAME_MOST or not await self._more():
                raise _Unusual
        head = bytes(self._rest[: found.end()])
        if not _is_frame(head + b"]}"):
            raise _Unusual  # "items" of something else
        del self._rest[: found.end()]
        return head

    async def mark(self) -> bytes:
        """Return the next byte that is no space, without taking it; empty at the end."""
        while True:
            first = bytes(self._rest[:1])
            if first and first not in _SPACE:
                return first
            if not first and not await self._more():
                return b""
            del self._rest[: len(first)]

    def skip(self) -> None:
        """Drop one byte."""
        del self._rest[:1]

    async def peek(self, size: int) -> bytes:
        await self._fill(size)
        return bytes(self._rest[:size])

    async def take_same(self, size: int, digest: bytes) -> bool:
        """Take the next bytes if they have this digest; return whether they do."""
        await self._fill(size)
        if len(self._rest) < size or _digest(self._rest[:size]) != digest:
            return False
        del self._rest[:size]
        return True

    async def take_object(self) -> bytes:
        """Take the object that begins here. Raises ValueError."""
        depth = place = 0
        while True:
            found = _STRUCTURE.search(self._rest, place)
            if found is None:
                place = len(self._rest)
                await self._need()
                continue
            place = found.end()
            match found[0]:
                case b'"':
                    place = await self._string_end(place)
                case b"{":
                    depth += 1
                case _:
                    depth -= 1
            if not depth:
                body = bytes(self._rest[:place])
                del self._rest[:place]
                return body

    async def _string_end(self, place: int) -> int:
        """Return the place behind the quote that ends the string which `place` is in."""
        while True:
            found = _IN_STRING.match(self._rest, place)
            place = found.end() if found else place
            if self._rest[place : place + 1] == b'"':
                return place + 1
            await self._need()

    async def tail(self) -> bytes:
        """Return the text behind the last pod, from its bracket on."""
        while await self._more():
            if len(self._rest) > FRAME_MOST:
                raise _Unusual
        return bytes(self._rest)

    async def whole(self) -> bytes:
        """Return all of the text. Raises ValueError where it is not small."""
        while self._size <= WHOLE_MOST and await self._more():
            self._rest.clear()
        if self._size > WHOLE_MOST:
            raise ValueError("a list of another layout than a kubelet's")
        return b"".join(self._first)

    async def _fill(self, size: int) -> None:
        while len(self._rest) < size and await self._more():
            pass

    async def _need(self) -> None:
        if len(self._rest) > POD_MOST:
            raise ValueError(f"a pod of more than {POD_MOST} bytes")
        if not await self._more():
            raise ValueError("the list ends in its middle")

    async def _more(self) -> bool:
        chunk = await anext(self._chunks, b"")
        self._rest += chunk
        self._size += len(chunk)
        if self._size <= WHOLE_MOST:
            self._first.append(chunk)
        else:
            self._first.clear()
        return bool(chunk)


def _digest(body: bytes | bytearray) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _is_frame(text: bytes) -> bool:
    """Return whether the text around the items is a list's, without any of them."""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(frame, dict) and frame.get("items") == []
