"""The API server, as far as a node agent needs it: JSON in, JSON out, and one watch.

Refusals come as `ApiRefused` with the server's own words, everything else that keeps an answer from
us as `ApiUnavailable`. Each call ends within its deadline.
"""

import asyncio
import codecs
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

from gpumanager.cluster.access import Access
from gpumanager.cluster.http import HttpBroken, Request, Response, exchange
from gpumanager.cluster.kept import Kept
from gpumanager.cluster.listing import Listing
from gpumanager.errors import GpuManagerError

Object = Mapping[str, Any]

DEADLINE: Final = 10.0
"""Seconds for one call that is no watch."""
SLACK: Final = 15.0
"""Seconds that a watch may be silent beyond the time it was asked for."""
FIRST_ERROR: Final = 400
BROKEN: Final = (OSError, HttpBroken, ValueError, RecursionError)
"""What comes of a bad connection (TimeoutError and SSLError among them) or a bad answer."""
NOT_UNDERSTOOD: Final = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""What comes of reading an object that is not what it should be."""
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"


class ApiUnavailable(GpuManagerError):
    """No answer from the API server, or none that is understood."""


class ApiRefused(GpuManagerError):
    """The API server said no. status: HTTP's. reason: Kubernetes' word for it, `Conflict`.

    retry_after: seconds that it wants us to wait, if it says so.
    """

    def __init__(
        self, what: str, status: int, reason: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{what}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class ApiServer:
    """Speaks with one API server. agent: how we call ourselves in its audit log.

    kept: for who asks often; else each request has a connection of its own.
    """

    def __init__(
        self, access: Access, *, agent: str = "gpu-manager", kept: Kept | None = None
    ) -> None:
        self.access = access
        self._agent = agent
        self._kept = kept

    async def get(self, path: str, **query: object) -> Any:
        return await self._ask("GET", path, query)

    async def list(self, path: str, take: Callable[[Any], None], **query: object) -> Any:
        """`take` gets each item; returns the list's metadata. Only one item is held at a time."""
        what, listing = f"list {path}", Listing()
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            request = self._request("GET", path, query)
            async with asyncio.timeout(DEADLINE), self._answer(request, what) as response:
                async for piece in response.pieces():
                    for item in listing.feed(decoder.decode(piece)):
                        take(item)
                return listing.finish().get("metadata") or {}
        except BROKEN as error:
            raise self._unavailable(what, error) from error

    async def create(self, path: str, body: Object) -> Any:
        return await self._ask("POST", path, {}, body)

    async def patch(self, path: str, body: Object, kind: str = MERGE) -> Any:
        return await self._ask("PATCH", path, {}, body, kind)

    async def delete(self, path: str, body: Object) -> Any:
        return await self._ask("DELETE", path, {}, body)

    @asynccontextmanager
    async def watch(
        self, path: str, seconds: float, **query: object
    ) -> AsyncIterator[AsyncIterator[Any]]:
        """Events as they come, for `seconds` at most; the server's own end is no error."""
        asked = {**query, "watch": "true", "timeoutSeconds": int(seconds)}
        what = f"watch {path}"
        try:
            request = self._request("GET", path, asked)
            async with (
                asyncio.timeout(seconds + SLACK),
                self._answer(request, what) as response,
                aclosing(response.lines()) as lines,
            ):
                yield (_object(line) async for line in lines)
        except BROKEN as error:
            raise self._unavailable(what, error) from error

    @asynccontextmanager
    async def _answer(self, request: Request, what: str) -> AsyncIterator[Response]:
        async with exchange(self.access.peer(), request, self._kept) as response:
            if response.status >= FIRST_ERROR:
                raise await _refusal(response, what)
            yield response

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Any:
        what = f"{method} {path}"
        try:
            request = self._request(method, path, query, body, kind)
            async with asyncio.timeout(DEADLINE), self._answer(request, what) as response:
                return _object(await response.read())
        except BROKEN as error:
            raise self._unavailable(what, error) from error

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Request:
        headers = {
            "Accept": "application/json",
            "User-Agent": self._agent,
            **self.access.headers(),
        }
        if body is not None:
            headers["Content-Type"] = kind
        target = self.access.prefix + quote(path)
        if query:
            target += "?" + urlencode(query)
        return Request(method, target, headers, b"" if body is None else json.dumps(body).encode())

    def _unavailable(self, what: str, error: Exception) -> ApiUnavailable:
        cause = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        return ApiUnavailable(f"{self.access}: {what}: {cause or type(error).__name__}")


async def _refusal(response: Response, what: str) -> ApiRefused:
    reason, message = _status(await response.read())
    wait = response.headers.get("Retry-After", "")
    pause = float(wait) if wait.isdigit() else None
    return ApiRefused(what, response.status, reason, message, pause)


def _object(text: bytes) -> Any:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise HttpBroken("an answer that is no object")
    return found


def _status(said: bytes) -> tuple[str, str]:
    """Reason and message of a Status object; of anything else its beginning."""
    try:
        found = json.loads(said)
        return str(found.get("reason", "")), str(found.get("message", ""))
    except (ValueError, AttributeError, RecursionError):
        return "", said[:200].decode("utf-8", "replace")
