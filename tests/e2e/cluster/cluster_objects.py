"""Objects of any kind at an API server: made, tried without being stored, found, counted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from tests.e2e.cluster.api_client import NOT_FOUND, ApiClient, ApiError

Object = dict[str, Any]

DRY: Final = "dryRun=All&fieldValidation=Strict"
PASSING: Final = {"events", "componentstatuses", "csinodes"}
"""Resources of which nobody says that they stay, and what kubelets make in their own time."""
KUBELETS: Final = "kube-node-lease"
"""A namespace of theirs."""


def parsed(text: str) -> Sequence[Object]:
    """Objects of YAML."""
    return [one for one in yaml.safe_load_all(text) if one]


def created(api: ApiClient, one: Mapping[str, Any]) -> None:
    """Raises ApiError."""
    collection = collection_of(api, one)
    assert collection is not None, f"a kind that no cluster has: {one['kind']}"
    api.create(collection, one)


def is_taken(api: ApiClient, one: Mapping[str, Any]) -> bool:
    """Whether a cluster knows the kind; if so it would take the object as it is, or ApiError.

    Nothing is stored. Under another name, as one of its own may be there already.
    """
    collection = collection_of(api, one)
    if collection is None:
        return False
    metadata = one["metadata"] | {"name": f"{one['metadata']['name']}-tried"}
    api.create(f"{collection}?{DRY}", {**one, "metadata": metadata})
    return True


def as_stored(api: ApiClient, one: Mapping[str, Any]) -> Object:
    """What the API server has of it. Raises ApiError."""
    found: Object = api.get(f"{collection_of(api, one)}/{one['metadata']['name']}")
    return found


def collection_of(api: ApiClient, one: Mapping[str, Any]) -> str | None:
    """Where objects of this kind are created, in the namespace of this one."""
    root = _root(one["apiVersion"])
    try:
        resources = api.get(root)["resources"]
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return None
    names = (r for r in resources if r["kind"] == one["kind"] and "/" not in r["name"])
    if (found := next(names, None)) is None:
        return None
    namespace = f"/namespaces/{one['metadata']['namespace']}" if found["namespaced"] else ""
    return f"{root}{namespace}/{found['name']}"


def everything(api: ApiClient) -> frozenset[str]:
    """All objects of a cluster, each as resource, namespace and name.

    Left out are `PASSING` and those in `KUBELETS`.
    """
    found = (
        (collection, one["metadata"].get("namespace", ""), one["metadata"]["name"])
        for collection in _collections(api)
        for one in api.get(collection)["items"]
    )
    return frozenset(
        f"{collection} {namespace}/{name}"
        for collection, namespace, name in found
        if namespace != KUBELETS
    )


def _collections(api: ApiClient) -> Iterator[str]:
    """Of every group in one version, what can be listed."""
    groups = [one["preferredVersion"]["groupVersion"] for one in api.get("/apis")["groups"]]
    for root in map(_root, ("v1", *groups)):
        for resource in api.get(root)["resources"]:
            if "list" in resource["verbs"] and resource["name"] not in PASSING:
                yield f"{root}/{resource['name']}"


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
