"""The extender over HTTP: kube-scheduler's verbs, gpu-admission's paths, probes, `/explain`, and
the cluster's page.
"""

import json
import time
from typing import Final

from aiohttp import web

from gpumanager.scheduler.cluster_pages import OverviewPages
from gpumanager.scheduler.extender import wire
from gpumanager.scheduler.extender.service import Extender, NotReady
from gpumanager.scheduler.http.server import (
    JSON,
    LATER,
    Bounds,
    Clients,
    HttpRefusal,
    HttpServer,
    Page,
    Routes,
    metrics,
    page_of,
    plain,
)
from gpumanager.scheduler.metrics import Metrics
from gpumanager.supervisor import Supervisor

CONTENT: Final = {"Content-Type": JSON}


class ExtenderServer(HttpServer):
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
        self._supervisor = supervisor or Supervisor()
        self.metrics = Metrics(
            lambda: extender.state.counts, lambda: extender.election.leads, self._supervisor
        )
        self._extender = extender
        self._version = version
        self._overview = OverviewPages(extender, version)
        super().__init__(self.routes(), bounds, clients)

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
            "/scheduler/predicates": "filter",
            "/scheduler/filter": "filter",
            "/scheduler/prioritize": "prioritize",
            "/scheduler/prioritize-claims": "prioritize_claims",
            "/scheduler/bind": "bind",
            "/scheduler/preempt": "preempt",
        }
        return {
            **{path: {"POST": self._page_of(verb)} for path, verb in verbs.items()},
            **{path: {"GET": page} for path, page in pages.items()},
        }

    def _page_of(self, verb: str) -> Page:
        async def answer(_request: web.BaseRequest, body: bytes) -> web.Response:
            began, outcome = time.perf_counter(), "failed"
            try:
                response = web.Response(body=await self._decide(verb, body), headers=CONTENT)
                outcome = "answered"
            except wire.BadRequest as error:
                outcome = "refused"
                raise HttpRefusal(400, str(error)) from None
            except NotReady as error:
                raise HttpRefusal(503, str(error), **LATER) from None
            finally:
                self.metrics.took(verb, outcome, time.perf_counter() - began)
            if not self._extender.election.leads:
                # A Service that selects the leader's label still has the connection to us that it
                # opened before the lease changed hands: the next request is to find the leader.
                response.force_close()
            return response

        return answer

    async def _decide(self, verb: str, body: bytes) -> bytes:
        extender = self._extender
        if verb == "bind":
            return wire.write_error(await extender.bind(wire.read_bind(body)))
        if verb == "preempt":
            pod, victims, violations = wire.read_preempt(body)
            return wire.write_victims(await extender.preempt(pod, victims), violations)
        pod, names, nodes = wire.read_arguments(body)
        if verb == "filter":
            return wire.write_filter(extender.filter(pod, names), nodes)
        claims = verb == "prioritize_claims"
        return wire.write_scores(extender.prioritize(pod, names, claims=claims))

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
