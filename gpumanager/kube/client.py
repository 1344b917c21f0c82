"""The client of the API server that agent, extender, webhook and command line share.

JSON in, JSON out, over the `kubernetes` package's client but without its models: 500 pods take 170
ms of processor time as typed objects and 12 ms as what is needed of them (decision 0125). A refusal
is an `ApiRefused` with the server's own words, all else that keeps an answer from us an
`ApiUnavailable`. Each call ends within its deadline.
"""

import asyncio
import codecs
import importlib
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlencode

from gpumanager.errors import InputError
from gpumanager.kube.access import Access
from gpumanager.kube.errors import ApiRefused, ApiUnavailable, Object

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from gpumanager.kube.connection import Connection

PAGE: Final = 500
"""Objects that are listed in one call."""
CALL_SECONDS: Final = 10.0
"""Seconds for one call that is no watch."""
SLACK: Final = 15.0
"""Seconds that a watch may be silent beyond the time it was asked for."""
RENEW_SECONDS: Final = 60.0
"""How often credentials are looked at whether they end soon."""
LONGEST_BODY: Final = 64 << 20
BROKEN: Final = (OSError, ValueError, RecursionError, InputError, ApiUnavailable)
"""What comes of a bad connection (TimeoutError and SSLError among them) or a bad answer."""
LIBRARY: Final = "gpumanager.kube.connection"
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"


class KubeClient:
    """One API server, one user. agent: our name in its audit log. For one event loop.

    Its creator closes it: `async with`, or `close`.
    """

    def __init__(
        self,
        access: Access,
        *,
        agent: str = "gpu-manager",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.access = access
        self._agent = agent
        self._clock = clock
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._renewed = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. A later request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def get(self, path: str, **query: object) -> Any:
        return await self._call("GET", path, query)

    async def find(self, path: str) -> Any:
        """Return the object; None where there is none."""
        try:
            return await self.get(path)
        except ApiRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    async def list(self, path: str, take: Callable[[Any], None], **query: object) -> Any:
        """Call `take` with each item, one at a time, and return the metadata of the last page."""
        query["limit"] = PAGE
        while True:
            listing, decoder = Listing(), codecs.getincrementaldecoder("utf-8")()
            async with self._exchange("GET", path, query) as response:
                async for piece in response.content.iter_any():
                    for item in listing.feed(decoder.decode(piece)):
                        take(item)
                metadata = listing.finish().get("metadata") or {}
            if not metadata.get("continue"):
                return metadata
            query = {**query, "continue": metadata["continue"]}
            query.pop("resourceVersion", None)

    async def create(self, path: str, body: Object) -> Any:
        return await self._call("POST", path, {}, body)

    async def patch(self, path: str, body: Object, kind: str = MERGE) -> Any:
        return await self._call("PATCH", path, {}, body, kind)

    async def delete(self, path: str, body: Object, **query: object) -> Any:
        return await self._call("DELETE", path, query, body)

    @asynccontextmanager
    async def watch(
        self, path: str, seconds: float, **query: object
    ) -> AsyncIterator[AsyncIterator[Any]]:
        """Yield events for `seconds` at most; if the server ends the watch, that is no error."""
        asked = {**query, "watch": "true", "timeoutSeconds": int(seconds)}
        async with (
            self._exchange("GET", path, asked, seconds=seconds + SLACK) as response,
            # What stands behind the last line's end is half a line, and is dropped.
            aclosing(
                _object(one) async for one in response.content if one.endswith(b"\n")
            ) as events,
        ):
            yield events

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: Object | None = None,
        kind: str = JSON,
    ) -> Any:
        async with self._exchange(method, path, query, body, kind=kind) as response:
            return _object(await _read_body(response))

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: Object | None = None,
        *,
        kind: str = JSON,
        seconds: float | None = None,
    ) -> AsyncIterator["ClientResponse"]:
        """Yield the answer unless it is a refusal. Any failure in the block is ApiUnavailable."""
        what, seconds = f"{method} {path}", seconds or CALL_SECONDS
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": JSON, "Content-Type": kind}
        try:
            async with asyncio.timeout(seconds):
                connection = await self._connect()
                async with connection.request(method, target, headers, body, seconds) as response:
                    if response.status >= HTTPStatus.BAD_REQUEST:
                        raise await _refusal(response, what)
                    yield response
        except BROKEN as error:
            cause = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            words = f"{self.access}: {what}: {cause or type(error).__name__}"
            raise ApiUnavailable(words) from error

    async def _connect(self) -> "Connection":
        """Return the connection, or a new one after a certificate or the kubeconfig changed.

        Requests on the old one end with an error, and their callers retry.
        """
        async with self._opening:
            if self._connection and self._clock() - self._renewed >= RENEW_SECONDS:
                await self._connection.renew()
                self._renewed = self._clock()
            if self._connection is None or not self._connection.current:
                await self.close()
                # Imports the package, once: in a thread, so that Allocate is answered meanwhile.
                if LIBRARY not in sys.modules:
                    await asyncio.to_thread(importlib.import_module, LIBRARY)
                library = importlib.import_module(LIBRARY)
                self._connection = await library.Connection.open(self.access, self._agent)
                self._renewed = self._clock()
            return self._connection


async def _read_body(response: "ClientResponse") -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > LONGEST_BODY:
            raise ValueError(f"an answer of more than {LONGEST_BODY} bytes")
    return bytes(body)


async def _refusal(response: "ClientResponse", what: str) -> ApiRefused:
    """Reason and message are those of a Status object; of anything else, its first 200 bytes."""
    body = await _read_body(response)
    try:
        found = json.loads(body)
        reason, message = str(found.get("reason", "")), str(found.get("message", ""))
    except (ValueError, AttributeError, RecursionError):
        reason, message = "", body[:200].decode("utf-8", "replace")
    wait = response.headers.get("Retry-After", "")
    pause = float(wait) if wait.isascii() and wait.isdigit() else None
    return ApiRefused(what, response.status, reason, message, pause)


def _object(text: bytes) -> Any:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("an answer that is no object")  # noqa: TRY004 - as of what is no JSON
    return found


LONGEST_ITEM: Final = 16 << 20
"""Characters of one item, or of all that is not an item."""
_ITEMS: Final = re.compile(r'"items"\s*:\s*\[')
_BETWEEN: Final = re.compile(r"[\s,]*")


class Listing:
    """Feed it all of the text; then `finish`."""

    def __init__(self) -> None:
        self._head = ""
        """Up to the first item."""
        self._text = ""
        """Which is not decoded yet; in the end what stands behind the last item."""
        self._decoder = json.JSONDecoder()

    def feed(self, text: str) -> Iterator[Any]:
        """Yield the items that are complete now; raises ValueError for what is no list."""
        self._text += text
        if not self._head:
            # Example of a match that is not it: {"metadata": {"items": [1]}, "items": [...]}.
            for found in _ITEMS.finditer(self._text):
                head = found.string[: found.end()]
                with suppress(ValueError):
                    json.loads(head + "]}")
                    self._head, self._text = head, self._text[found.end() :]
                    break
        at = 0
        while self._head:
            between = _BETWEEN.match(self._text, at)
            at = between.end() if between else at
            try:
                item, at = self._decoder.raw_decode(self._text, at)
            except json.JSONDecodeError:  # the list's end, or an item that is not all there
                break
            yield item
        self._text = self._text[at:]
        if len(self._text) > LONGEST_ITEM:
            raise ValueError(f"an item of more than {LONGEST_ITEM} characters, or no list at all")

    def finish(self) -> dict[str, Any]:
        """Return the list without its items; raises ValueError where its text is not complete."""
        try:
            fields = json.loads(self._head + self._text)
        except json.JSONDecodeError as error:
            raise ValueError("the text ends in the middle of a list, or is none") from error
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - as of what is no JSON
        return fields
