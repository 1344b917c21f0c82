"""Stands for what a cluster does for a Service: its address leads to a pod that is ready.

Endpoints are the pods of its selector whose `/readyz` answers 200, looked up anew when they are
older than a moment; a connection stays with the pod it was led to, as behind kube-proxy.
"""

import contextlib
import http.client
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tests.e2e.cluster.api_client import ApiClient, ApiError, Object

FRESH_SECONDS: Final = 0.5
PROBE_SECONDS: Final = 30.0
"""Who is dead refuses at once; who is slow answers."""
PIECE: Final = 1 << 16

Endpoint = tuple[str, int]


class ServiceDoor:
    """One Service, made at the API server with an address that is this host's."""

    def __init__(self, api: ApiClient, service: Object) -> None:
        self._api = api
        self._pods = f"/api/v1/namespaces/{service['metadata']['namespace']}/pods"
        self._selector = ",".join(f"{k}={v}" for k, v in service["spec"]["selector"].items())
        (port,) = service["spec"]["ports"]
        self._target = int(port.get("targetPort", port["port"]))
        self._turn = itertools.count()
        self._known: list[Endpoint] = []
        self._looked = float("-inf")
        self._looking = threading.Lock()
        self._listener = socket.create_server((service["spec"]["clusterIP"], int(port["port"])))
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def endpoints(self) -> list[Endpoint]:
        """The pods that are ready."""
        with self._looking:
            if time.monotonic() - self._looked > FRESH_SECONDS:
                self._known = [one for one in self._selected() if is_ready(one)]
                self._looked = time.monotonic()
            return self._known

    def _selected(self) -> Iterator[Endpoint]:
        try:
            found = self._api.get(f"{self._pods}?labelSelector={quote(self._selector)}")
        except ApiError:
            return
        for pod in found["items"] or ():
            if address := pod["status"].get("podIP"):
                yield address, self._target

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._lead, args=(caller,), daemon=True).start()

    def _lead(self, caller: socket.socket) -> None:
        """Both ways, until either side has ended."""
        with caller, contextlib.suppress(OSError):
            if not (endpoints := self.endpoints()):
                return
            chosen = endpoints[next(self._turn) % len(endpoints)]
            with socket.create_connection(chosen, PROBE_SECONDS) as pod:
                pod.settimeout(None)
                back = threading.Thread(target=copy, args=(pod, caller), daemon=True)
                back.start()
                copy(caller, pod)
                back.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    """What comes, until it ends; its end too."""
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
    for one, way in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            one.shutdown(way)


def is_ready(endpoint: Endpoint) -> bool:
    """As a kubelet asks, who believes every certificate."""
    try:
        return https(endpoint, "GET", "/readyz")[0] == http.client.OK
    except (OSError, http.client.HTTPException):
        return False


def https(
    endpoint: Endpoint,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    ours: tuple[Path, Path] | None = None,
) -> tuple[int, Any]:
    """Status and text. ours: a certificate to show, and its key. Raises OSError, HTTPException."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if ours:
        context.load_cert_chain(*ours)
    connection = http.client.HTTPSConnection(*endpoint, timeout=PROBE_SECONDS, context=context)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
