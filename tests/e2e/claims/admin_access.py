"""The namespace of the tests may look at what others have."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.e2e.cluster.api_client import ApiClient

NAMESPACE: Final = "/api/v1/namespaces/default"
ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"


@contextmanager
def admin_access_allowed(api: ApiClient) -> Iterator[None]:
    _label(api, "true")
    yield
    _label(api, None)


def _label(api: ApiClient, said: str | None) -> None:
    labels = {"metadata": {"labels": {ADMIN_ACCESS: said}}}
    api.ask("PATCH", NAMESPACE, labels, "merge-patch+json")
