"""The extender over HTTP: kube-scheduler's verbs, gpu-admission's paths, probes, `/explain`, and
the cluster's page.
"""

import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from gpumanager.http_server import ContextSource
from gpumanager.scheduler.cluster_pages import OverviewPages
from gpumanager.scheduler.extender import wire
from gpumanager.scheduler.extender.bind import NotBound
from gpumanager.scheduler.extender.metrics import Metrics, TaskCollector
from gpumanager.scheduler.extender.service import Extender, NotReady
from gpumanager.scheduler.http.clients import Clients
from gpumanager.scheduler.http.server import (
    JSON,
    LATER,
    Bounds,
    HttpRefusal,
    HttpServer,
    Page,
    Routes,
    metrics,
    page_of,
    plain,
)
from gpumanager.supervisor import Supervisor

CONTENT: Final = {"Content-Type": JSON}


class ExtenderServer:
    """Serves an extender. version: for `/version`. clients: which client certificates are accepted;
    None: no certificate is needed. supervisor: of its background tasks."""

    def __init__(
        self,
        extender: Extender,
        bounds: Bounds | None = None,
        *,
        version: str = "",
        clients: Clients | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.metrics = Metrics(lambda: extender.state.counts, lambda: extender.election.leads)
        self._supervisor = supervisor or Supervisor()
        self.metrics.add(TaskCollector("gpumanager_extender", self._supervisor))
        self._extender = extender
        self._version = version
        self._overview = OverviewPages(extender, version)
        self._server = HttpServer(self.routes(), bounds, clients)

    async def start(self, address: str, port: int, tls: ContextSource | None = None) -> int:
        """Listen until `stop`; returns the port. Raises OSError."""
        return await self._server.start(address, port, tls)

    async def stop(self) -> None:
        """Accept no more; requests that are being answered get their response."""
        await self._server.stop()

    @property
    def connections(self) -> int:
        return self._server.connections

    def routes(self) -> Routes:
        pages = {
            "/version": page_of(lambda: plain(self._version)),
            "/healthz": page_of(self._healthz),
            "/readyz": page_of(self._readyz),
            "/metrics": page_of(lambda: metrics(self.metrics.text())),
            "/explain/": self._explain,
            **self._overview.pages(),
        }
        verbs = {
            "/scheduler/predicates": self._verb("filter", self._filter),
            "/scheduler/filter": self._verb("filter", self._filter),
            "/scheduler/prioritize": self._verb("prioritize", self._prioritize),
            "/scheduler/prioritize-claims": self._verb("prioritize_claims", self._claims),
            "/scheduler/bind": self._verb("bind", self._bind),
            "/scheduler/preempt": self._verb("preempt", self._preempt),
        }
        return {
            **{path: {"POST": page} for path, page in verbs.items()},
            **{path: {"GET": page} for path, page in pages.items()},
        }

    def _verb(self, name: str, decide: Callable[[bytes], Awaitable[bytes]]) -> Page:
        async def answer(_request: web.BaseRequest, body: bytes) -> web.Response:
            with self._measured(name):
                response = web.Response(body=await decide(body), headers=CONTENT)
            if not self._extender.election.leads:
                # A Service that selects the leader's label still has the connection to us that it
                # opened before the lease changed hands: the next request is to find the leader.
                response.force_close()
            return response

        return answer

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        began, outcome = time.perf_counter(), "failed"
        try:
            yield
            outcome = "answered"
        except wire.BadRequest as error:
            outcome = "refused"
            raise HttpRefusal(400, str(error)) from None
        except NotReady as error:
            raise HttpRefusal(503, str(error), **LATER) from None
        finally:
            self.metrics.took(name, outcome, time.perf_counter() - began)

    async def _filter(self, body: bytes) -> bytes:
        arguments = wire.read_arguments(body)
        found = self._extender.filter(arguments.pod, arguments.names)
        return wire.write_filter(arguments, found)

    async def _prioritize(self, body: bytes) -> bytes:
        arguments = wire.read_arguments(body)
        return wire.write_scores(self._extender.prioritize(arguments.pod, arguments.names))

    async def _claims(self, body: bytes) -> bytes:
        arguments = wire.read_arguments(body)
        return wire.write_scores(self._extender.prioritize_claims(arguments.pod, arguments.names))

    async def _preempt(self, body: bytes) -> bytes:
        said = wire.read_preempt(body)
        found = await self._extender.preempt(said.pod, said.victims)
        return wire.write_victims(found, said.violations)

    async def _bind(self, body: bytes) -> bytes:
        refused = await self._extender.bind(wire.read_bind(body))
        return wire.write_error(refused.message if isinstance(refused, NotBound) else "")

    def _healthz(self) -> web.Response:
        if trouble := self._supervisor.trouble:
            raise HttpRefusal(503, trouble)
        return plain("ok")

    def _readyz(self) -> web.Response:
        if missing := self._extender.missing:
            raise HttpRefusal(503, f"the cluster's {missing} are still being read")
        return plain("ready, leading" if self._extender.election.leads else "ready, standing by")

    async def _explain(self, request: web.BaseRequest, _body: bytes) -> web.Response:
        words = request.path.split("/")
        if len(words) != 4:  # noqa: PLR2004
            raise HttpRefusal(404, "write /explain/NAMESPACE/POD")
        known = self._extender.memory.of(words[2], words[3])
        if known is None:
            said = "kube-scheduler has not asked this extender about it lately; check the name, "
            said += "spec.schedulerName of the pod, and whether this replica is the leader"
            raise HttpRefusal(404, f"pod {words[2]}/{words[3]} is not known: {said}")
        body = json.dumps({"pod": f"{words[2]}/{words[3]}", **known.as_json()}).encode()
        return web.Response(body=body, headers=CONTENT)
