"""The few calls to a real API server that the tests make: objects in, objects out, as JSON."""

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

SECONDS: Final = 60.0
NOT_FOUND: Final = 404
CONFLICT: Final = 409

Object = Mapping[str, Any]


class ApiError(Exception):
    """The API server said no, in these words; status: of HTTP, 0 where nobody answered."""

    def __init__(self, what: str, status: int, said: str) -> None:
        super().__init__(f"{what}: {status} {said[:300]}")
        self.status = status
        self.said = said


class ApiClient:
    """One user of one API server. authority: a file, which may come later; None: none is needed."""

    def __init__(self, port: int, token: str, authority: Path | None) -> None:
        self._port = port
        self._token = token
        self._authority = authority

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = "json") -> Any:
        """The answer's object, or its text where it is none. Raises ApiError."""
        said = self._said(method, path, body, kind)
        return json.loads(said) if said.startswith("{") else said

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def changes(self, path: str, since: str) -> list[Any]:
        """What has become of a list since a version of it, event by event."""
        watch = f"watch=true&resourceVersion={since}&timeoutSeconds=1"
        lines = self._said("GET", f"{path}?{watch}", None, "json").splitlines()
        return [json.loads(line) for line in lines]

    def create(self, path: str, body: Object) -> Any:
        return self.ask("POST", path, body)

    def delete(self, path: str, seconds: int) -> None:
        """With a grace period; what is gone already is no error."""
        try:
            self.ask("DELETE", f"{path}?gracePeriodSeconds={seconds}")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def _said(self, method: str, path: str, body: Object | None, kind: str) -> str:
        what = f"{method} {path}"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": f"application/{kind}"}
        try:
            with closing(self._connection()) as connection:
                text = None if body is None else json.dumps(body)
                connection.request(method, path, text, headers)
                response = connection.getresponse()
                said = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(what, 0, str(error)) from error
        if response.status >= http.client.BAD_REQUEST:
            raise ApiError(what, response.status, said)
        return said

    def _connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self._authority)
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=SECONDS, context=context
        )


def silent(ask: Callable[[], Any]) -> Any:
    """The answer, or None while there is none."""
    try:
        return ask()
    except ApiError:
        return None
