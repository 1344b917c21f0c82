"""What certificates need from the API server: Secrets, webhook configurations, signing requests.

`gpumanager.kube.client.KubeClient` implements it. A conflict is no error here: the second writer
reads what the first one wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

from gpumanager.kube.errors import ApiRefused

REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
SIGNING: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class CertificateApi(Protocol):
    """JSON objects by their paths; raises ApiRefused, ApiUnavailable."""

    async def get(self, path: str, **query: object) -> Any: ...

    async def create(self, path: str, body: Mapping[str, Any]) -> Any: ...

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Named:
    """An object in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


async def find(api: CertificateApi, path: str) -> Any:
    """Return the object; None where there is none. Raises ApiRefused, ApiUnavailable."""
    try:
        return await api.get(path)
    except ApiRefused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


def is_conflict(error: ApiRefused) -> bool:
    """Return whether another writer was first: it exists already, or has changed meanwhile."""
    return error.status == HTTPStatus.CONFLICT
