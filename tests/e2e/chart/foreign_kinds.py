"""Kinds of other projects that the chart has objects of, as small definitions of our own.

Written from the documentation of the Prometheus operator's and cert-manager's kinds, and of the
fields alone that the chart writes: a field that is not here is refused, though theirs may have it.
They show that group, version, kind, scope, names and types of fields are as documented; not that
the operators' own definitions are the same today, nor what the operators make of an object.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from tests.e2e.cluster.api_client import ApiClient, silent
from tests.e2e.cluster.cluster_objects import collection_of
from tests.e2e.node.node_process import wait_for

PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Schema = dict[str, Any]


def _fields(*required: str, **properties: Schema) -> Schema:
    made: Schema = {"type": "object", "properties": properties}
    return made | {"required": list(required)} if required else made


def _list(items: Schema, *keys: str) -> Schema:
    """keys: fields of which no two items have the same."""
    made: Schema = {"type": "array", "items": items}
    marks = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return made | marks if keys else made


def _one_of(*words: str) -> Schema:
    return TEXT | {"enum": list(words)}


TEXT: Final[Schema] = {"type": "string"}
NAME: Final = TEXT | {"minLength": 1}
FLAG: Final[Schema] = {"type": "boolean"}
NUMBER: Final[Schema] = {"type": "integer"}
TEXTS: Final[Schema] = {"type": "object", "additionalProperties": TEXT}
DURATION: Final = TEXT | {"pattern": "^([0-9]+(ms|[smhdwy]))+$"}
EXPRESSION: Final[Schema] = {"x-kubernetes-int-or-string": True}

RELABELING: Final = _fields(sourceLabels=_list(TEXT), targetLabel=TEXT, replacement=TEXT)
TLS: Final = _fields(
    ca=_fields(secret=_fields("key", name=TEXT, key=TEXT)),
    serverName=TEXT,
    insecureSkipVerify=FLAG,
)
ENDPOINT: Final = _fields(
    port=TEXT,
    path=TEXT,
    interval=DURATION,
    scheme=_one_of("http", "https"),
    honorLabels=FLAG,
    relabelings=_list(RELABELING),
    tlsConfig=TLS,
)
RULE: Final = _fields(
    "expr",
    alert=TEXT,
    record=TEXT,
    expr=EXPRESSION,
    labels=TEXTS,
    annotations=TEXTS,
    **{"for": DURATION},
)
ISSUER: Final = _fields("name", name=TEXT, kind=TEXT, group=TEXT)
CERTIFICATE: Final = _fields(
    "secretName",
    "issuerRef",
    secretName=TEXT,
    commonName=TEXT,
    duration=TEXT,
    dnsNames=_list(TEXT),
    ipAddresses=_list(TEXT),
    usages=_list(_one_of("digital signature", "key encipherment", "server auth", "client auth")),
    privateKey=_fields(algorithm=_one_of("RSA", "ECDSA", "Ed25519"), size=NUMBER),
    issuerRef=ISSUER,
)

OF_PROMETHEUS: Final = "monitoring.coreos.com"
OF_CERT_MANAGER: Final = "cert-manager.io"
SPECS: Final = {
    (OF_PROMETHEUS, "PodMonitor"): _fields(
        "selector",
        selector=_fields(matchLabels=TEXTS),
        podMetricsEndpoints=_list(ENDPOINT),
    ),
    (OF_PROMETHEUS, "PrometheusRule"): _fields(
        groups=_list(_fields("name", name=NAME, interval=DURATION, rules=_list(RULE)), "name"),
    ),
    (OF_CERT_MANAGER, "Certificate"): CERTIFICATE,
    (OF_CERT_MANAGER, "Issuer"): _fields(selfSigned=_fields()),
}
"""By group and kind; all of them are v1 and namespaced."""


@contextmanager
def foreign_kinds(api: ApiClient) -> Iterator[None]:
    """They are known while this lasts."""
    made = [_definition(group, kind, spec) for (group, kind), spec in SPECS.items()]
    try:
        for one in made:
            api.create(PATH, one)
        for group, kind in SPECS:
            wait_for(partial(_is_served, api, group, kind), f"{kind} is known")
        yield
    finally:
        for one in made:
            api.delete(f"{PATH}/{one['metadata']['name']}", 0)


def _definition(group: str, kind: str, spec: Schema) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _fields("spec", spec=spec)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _is_served(api: ApiClient, group: str, kind: str) -> bool:
    """By the list of groups, which comes later than the group, and by the collection itself."""
    if group not in {known["name"] for known in api.get("/apis")["groups"]}:
        return False
    one = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": "tried", "namespace": "default"},
    }
    collection = collection_of(api, one)
    return collection is not None and silent(lambda: api.get(collection)) is not None
