"""The simulated API server: one cluster's objects over HTTP on a port of the loopback.

It can be told to be away, to hang, to refuse, to forget its history: what a real one does on a bad
day. Everything else follows the real one, with which it shares its contract tests.
"""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from gpumanager.http_server import BoundedServer, ConnectionBounds
from gpumanager.sim.cluster.objects import GROUPS, KINDS, Change, Key, Object, Objects, StatusError
from gpumanager.sim.cluster.requests import Call, read_call, selector, status_object

REQUEST_SECONDS: Final = 30.0
LONGEST_BODY: Final = 3 << 20
BOUNDS: Final = ConnectionBounds(connections=4096, head_seconds=REQUEST_SECONDS)
WATCH_SECONDS: Final = 1800.0
BOOKMARK_SECONDS: Final = 60.0
OK: Final = 200
CREATED: Final = 201


class SimulatedApiServer:
    """Serves `objects`. token: what a caller has to show; empty: everybody is let in."""

    def __init__(self, *, token: str = "", bookmark_seconds: float = BOOKMARK_SECONDS) -> None:
        self.objects = Objects()
        self.token = token
        self.calls: list[Call] = []
        self.answering = asyncio.Event()
        """Cleared: callers are let in and wait."""
        self.answering.set()
        self.port = 0
        self._bookmark_seconds = bookmark_seconds
        self._refusals: deque[tuple[StatusError, Mapping[str, str]]] = deque()
        self._changed = asyncio.Condition()
        self._server: BoundedServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> str:
        """The text of a file by which clients find it."""
        named = {"cluster": "simulated", "user": "simulated"}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "simulated", "cluster": {"server": self.url}}],
                "users": [{"name": "simulated", "user": {}}],
                "contexts": [{"name": "simulated", "context": named}],
                "current-context": "simulated",
            }
        )

    async def start(self) -> None:
        """Listen; the port stays the same over an outage."""
        self._server = BoundedServer(self._answer, BOUNDS)
        self.port = await self._server.start("127.0.0.1", self.port)

    async def stop(self) -> None:
        """An outage: nobody listens, and every connection is cut."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=False)

    async def cut(self) -> None:
        """Every connection ends now, in the middle of what it says."""
        if self._server is not None:
            await self._server.cut()

    def refuse(
        self, status: int, reason: str, times: int = 1, headers: Mapping[str, str] | None = None
    ) -> None:
        """The next calls that change something are refused so."""
        refused = StatusError(status, reason, "refused as told")
        self._refusals.extend([(refused, headers or {})] * times)

    async def create(self, resource: str, item: Object) -> Object:
        """As somebody else would."""
        metadata = item["metadata"]
        key = Key(resource, metadata.get("namespace", ""), metadata["name"])
        made = self.objects.create(key, item)
        await self._tell()
        return made

    async def change(self, key: Key, kind: str, patch: Object, *, status: bool = False) -> Object:
        made = self.objects.patch(key, kind, patch, status=status)
        await self._tell()
        return made

    async def apply(self, write: Callable[[Objects], object]) -> None:
        """A change as somebody beside us makes it; raises StatusError, and nothing changed."""
        write(self.objects)
        await self._tell()

    async def changed_since(self, version: int) -> None:
        """Returns once there is something after `version`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.objects.version > version)

    async def remove(self, key: Key) -> None:
        """As a kubelet does with a pod that has ended."""
        self.objects.remove(key)
        await self._tell()

    async def forget(self) -> None:
        """History is compacted, and watches that are open end."""
        self.objects.forget()
        await self.cut()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        async with asyncio.timeout(REQUEST_SECONDS):
            body = await _body(request)
        await self.answering.wait()
        try:
            self._let_in(request.headers)
            kind = request.headers.get("Content-Type", "")
            call = read_call(request.method, request.path_qs, kind, body)
            self.calls.append(call)
            if call.method == "GET" and call.query.get("watch") in {"true", "1"}:
                return await self._watch(call, request)
            status, found = await self._done(call)
            return web.json_response(found, status=status)
        except StatusError as refused:
            more = self._refusal_headers(refused)
            found = status_object(refused)
            return web.json_response(found, status=refused.status, headers=more)

    def _let_in(self, headers: Mapping[str, str]) -> None:
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            raise StatusError(401, "Unauthorized", "Unauthorized")

    def _refusal_headers(self, refused: StatusError) -> Mapping[str, str]:
        if self._refusals and self._refusals[0][0] is refused:
            return self._refusals.popleft()[1]
        return {}

    async def _done(self, call: Call) -> tuple[int, Any]:
        if call.method == "GET":
            return OK, self.objects.get(call.key) if call.name else self._list(call)
        if self._refusals:
            raise self._refusals[0][0]
        made = self._change(call)
        await self._tell()
        return (CREATED if call.method == "POST" else OK), made

    def _change(self, call: Call) -> Object:
        if call.method == "POST" and call.part == "binding":
            return self.objects.bind(call.key, call.object())
        if call.method == "POST" and not call.name:
            item = call.object()
            metadata = item.get("metadata", {})
            name = metadata.get("name")
            if not name and metadata.get("generateName"):
                name = metadata["generateName"] + secrets.token_hex(3)[:5]
            if not name:
                raise StatusError(422, "Invalid", "metadata.name: Required value")
            return self.objects.create(replace(call, name=name).key, item)
        if call.method == "PUT":
            return self.objects.update(call.key, call.object(), status=call.part == "status")
        if call.method == "PATCH":
            status = call.part == "status"
            return self.objects.patch(call.key, call.kind, call.object(), status=status)
        if call.method == "DELETE":
            options = call.object()
            grace = call.query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
            same = options.get("preconditions") or {}
            if not call.name:
                return self._delete_collection(call)
            return self.objects.delete(call.key, same, None if grace is None else int(grace))
        raise StatusError(405, "MethodNotAllowed", f"{call.method} is not allowed here")

    def _delete_collection(self, call: Call) -> Object:
        """What a list with the same selector has; answers with that list."""
        found = self._list(call)
        for row in found["items"]:
            metadata = row["metadata"]
            key = Key(call.resource, metadata.get("namespace", ""), metadata["name"])
            self.objects.delete(key, {})
        return found

    def _list(self, call: Call) -> Object:
        """Pages go by position: what changes between two of them is not looked at."""
        wanted = selector(call.query)
        rows = [row for row in self.objects.list(call.resource, call.namespace) if wanted(row)]
        first = int(call.query.get("continue", "0"))
        limit = int(call.query.get("limit", "0")) or len(rows)
        metadata = {"resourceVersion": str(self.objects.version)}
        if first + limit < len(rows) and call.query.get("resourceVersion") != "0":
            metadata["continue"] = str(first + limit)
            rows = rows[first : first + limit]
        else:
            rows = rows[first:]
        kind, group = f"{KINDS[call.resource]}List", GROUPS.get(call.resource, "v1")
        return {"kind": kind, "apiVersion": group, "metadata": metadata, "items": rows}

    async def _watch(self, call: Call, request: web.BaseRequest) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        seconds = float(call.query.get("timeoutSeconds", WATCH_SECONDS))
        try:
            async with asyncio.timeout(seconds):
                await self._follow(call, stream)
        except TimeoutError:
            if "allowWatchBookmarks" in call.query:
                await _send(stream, _bookmark(call.resource, self.objects.version))
        await stream.write_eof()
        return stream

    async def _follow(self, call: Call, stream: web.StreamResponse) -> None:
        wanted = selector(call.query)
        version = int(call.query.get("resourceVersion") or 0)
        if version and version < self.objects.forgotten:
            message = f"too old resource version: {version} ({self.objects.forgotten})"
            expired = status_object(StatusError(410, "Expired", message))
            await _send(stream, {"type": "ERROR", "object": expired})
            return
        if version == 0:
            for row in filter(wanted, tuple(self.objects.list(call.resource))):
                await _send(stream, {"type": "ADDED", "object": row})
            version = self.objects.version
        while True:
            news = tuple(self._since(version, call.resource, wanted))
            version = self.objects.version
            for event in news:
                await _send(stream, event)
            if not await self._news(version) and "allowWatchBookmarks" in call.query:
                await _send(stream, _bookmark(call.resource, version))

    def _since(self, version: int, resource: str, wanted: Any) -> Iterator[Any]:
        for change in self.objects.changes:
            if change.version > version and change.key.resource == resource:
                event = _event(change, wanted)
                if event:
                    yield event

    async def _news(self, version: int) -> bool:
        """True once there is something after `version`; False when a bookmark is due."""
        try:
            async with asyncio.timeout(self._bookmark_seconds):
                await self.changed_since(version)
        except TimeoutError:
            return False
        return True

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _event(change: Change, wanted: Any) -> dict[str, Any] | None:
    """As a watcher with a selector sees it: what comes to match is new, what ceases to is gone."""
    was = change.before is not None and wanted(change.before)
    is_ = change.after is not None and wanted(change.after)
    if is_:
        return {"type": "MODIFIED" if was else "ADDED", "object": change.after}
    if not was or change.before is None:
        return None
    metadata = {**change.before["metadata"], "resourceVersion": str(change.version)}
    return {"type": "DELETED", "object": {**change.before, "metadata": metadata}}


def _bookmark(resource: str, version: int) -> dict[str, Any]:
    metadata = {"resourceVersion": str(version)}
    group = GROUPS.get(resource, "v1")
    item = {"kind": KINDS[resource], "apiVersion": group, "metadata": metadata}
    return {"type": "BOOKMARK", "object": item}


async def _body(request: web.BaseRequest) -> bytes:
    """Raises web.HTTPRequestEntityTooLarge."""
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > LONGEST_BODY:
            raise web.HTTPRequestEntityTooLarge(LONGEST_BODY, len(body))
    return bytes(body)


async def _send(stream: web.StreamResponse, event: Any) -> None:
    await stream.write(json.dumps(event).encode() + b"\n")
