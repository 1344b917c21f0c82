"""The simulated API server: one cluster's objects over HTTP on a port of the loopback.

It can be told to be away, to hang, to refuse, to forget its history: what a real one does on a bad
day. Everything else follows the real one, with which it shares its contract tests.
"""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from gpumanager.http_server import BoundedServer, ConnectionBounds
from gpumanager.kube.errors import Object
from gpumanager.sim.cluster.objects import TYPES, Key, Objects, StatusError, key_of
from gpumanager.sim.cluster.requests import Call, bookmark, read_call, selector, watch_event

BOUNDS: Final = ConnectionBounds(connections=4096, head_seconds=30.0)
WATCH_SECONDS: Final = 1800.0
BOOKMARK_SECONDS: Final = 60.0


class SimulatedApiServer:
    """Serves `objects`. token: what a caller has to present; empty: every caller is allowed."""

    def __init__(self, *, token: str = "", bookmark_seconds: float = BOOKMARK_SECONDS) -> None:
        self.objects = Objects()
        self.token = token
        self.calls: list[Call] = []
        self.answering = asyncio.Event()
        """Cleared: callers are let in and wait."""
        self.answering.set()
        self.port = 0
        self._bookmark_seconds = bookmark_seconds
        self._refusals: deque[StatusError] = deque()
        self._changed = asyncio.Condition()
        self._server: BoundedServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> str:
        """Return the text of a kubeconfig file for clients."""
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
        """Simulate an outage: stop listening, and cut every connection."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=False)

    async def cut(self) -> None:
        """End every connection now, in the middle of a response."""
        if self._server is not None:
            await self._server.cut()

    def refuse(self, status: int, reason: str, times: int = 1) -> None:
        """Refuse the next calls that change something."""
        self._refusals.extend([StatusError(status, reason, "refused as told")] * times)

    async def create(self, resource: str, item: Object) -> Object:
        """Create an object as another client would."""
        made = self.objects.create(key_of(resource, item), item)
        await self._notify()
        return made

    async def change(self, key: Key, patch: Object, *, status: bool = False) -> Object:
        made = self.objects.patch(key, patch, status=status)
        await self._notify()
        return made

    async def apply(self, write: Callable[[Objects], object]) -> None:
        """Make a change as another client does; raises StatusError, and nothing changed."""
        write(self.objects)
        await self._notify()

    async def changed_since(self, version: int) -> None:
        """Return once there is something after `version`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.objects.version > version)

    async def remove(self, key: Key) -> None:
        """Remove an object at once, as a kubelet does with a pod that has ended."""
        self.objects.remove(key)
        await self._notify()

    async def forget(self) -> None:
        """Compact the history, and end the watches that are open."""
        self.objects.forget()
        await self.cut()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        await self.answering.wait()
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            unknown = StatusError(401, "Unauthorized", "Unauthorized")
            return web.json_response(unknown.as_object(), status=401)
        try:
            kind = request.headers.get("Content-Type", "")
            call = read_call(request.method, request.path_qs, kind, body)
            self.calls.append(call)
            if call.method == "GET" and call.query.get("watch") in {"true", "1"}:
                return await self._watch(call, request)
            if call.method == "GET":
                return web.json_response(
                    self.objects.get(call.key) if call.name else self._list(call)
                )
            if self._refusals:
                raise self._refusals.popleft()
            found = self._change(call)
        except StatusError as refused:
            return web.json_response(refused.as_object(), status=refused.status)
        await self._notify()
        return web.json_response(found, status=201 if call.method == "POST" else 200)

    def _change(self, call: Call) -> Object:
        body = call.object()
        match call.method:
            case "POST" if call.part == "binding":
                return self.objects.bind(call.key, body)
            case "POST" if not call.name:
                metadata = body.get("metadata", {})
                name = metadata.get("name")
                if not name and metadata.get("generateName"):
                    name = metadata["generateName"] + secrets.token_hex(3)[:5]
                if not name:
                    raise StatusError(422, "Invalid", "metadata.name: Required value")
                return self.objects.create(replace(call, name=name).key, body)
            case "PATCH":
                status = call.part == "status"
                return self.objects.patch(call.key, body, call.kind, status=status)
            case "DELETE" if call.name:
                grace = call.query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
                same = body.get("preconditions") or {}
                return self.objects.delete(call.key, same, None if grace is None else int(grace))
            case "DELETE":
                collection = self._list(call)
                for row in collection["items"]:
                    self.objects.delete(key_of(call.resource, row), {})
                return collection
        raise StatusError(405, "MethodNotAllowed", f"{call.method} is not allowed here")

    def _list(self, call: Call) -> Object:
        """Return a page of a list, by position: changes between two pages are not considered."""
        wanted = selector(call.query)
        rows = [row for row in self.objects.list(call.resource, call.namespace) if wanted(row)]
        first = int(call.query.get("continue", "0"))
        end = first + (int(call.query.get("limit", "0")) or len(rows))
        metadata = {"resourceVersion": str(self.objects.version)}
        if call.query.get("resourceVersion") == "0":
            end = len(rows)
        elif end < len(rows):
            metadata["continue"] = str(end)
        version, kind = TYPES[call.resource]
        items = rows[first:end]
        return {
            "kind": f"{kind}List",
            "apiVersion": version,
            "metadata": metadata,
            "items": items,
        }

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
                await _send(stream, bookmark(call.resource, self.objects.version))
        await stream.write_eof()
        return stream

    async def _follow(self, call: Call, stream: web.StreamResponse) -> None:
        wanted = selector(call.query)
        version = int(call.query.get("resourceVersion") or 0)
        if version and version < self.objects.forgotten:
            message = f"too old resource version: {version} ({self.objects.forgotten})"
            expired = StatusError(410, "Expired", message)
            await _send(stream, {"type": "ERROR", "object": expired.as_object()})
            return
        if version == 0:
            for row in filter(wanted, tuple(self.objects.list(call.resource))):
                await _send(stream, {"type": "ADDED", "object": row})
            version = self.objects.version
        while True:
            events = [
                event
                for change in self.objects.changes
                if change.version > version and change.key.resource == call.resource
                if (event := watch_event(change, wanted))
            ]
            version = self.objects.version
            for event in events:
                await _send(stream, event)
            try:
                async with asyncio.timeout(self._bookmark_seconds):
                    await self.changed_since(version)
            except TimeoutError:
                if "allowWatchBookmarks" in call.query:
                    await _send(stream, bookmark(call.resource, version))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _send(stream: web.StreamResponse, event: Mapping[str, Any]) -> None:
    await stream.write(json.dumps(event).encode() + b"\n")
