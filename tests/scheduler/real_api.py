"""A real API server, where the environment names one, and accounts there with a page's rights."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpumanager.kube.access import Access, read_kubeconfig
from gpumanager.kube.client import KubeClient
from tests.kube.kube_clients import opened

KUBECONFIG = "GPUMANAGER_API_KUBECONFIG"
"""Names the kubeconfig of an administrator of a real API server; without it those are skipped."""
PAGES = Path(__file__).parents[2] / "docs"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"


def manifests(page: str) -> list[Any]:
    """What a page of the documentation says to install."""
    blocks = (PAGES / page).read_text().split("```yaml\n")[1:]
    texts = [block.split("```")[0] for block in blocks]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def administrator() -> Access:
    if KUBECONFIG not in os.environ:
        pytest.skip(f"no real API server: {KUBECONFIG} names no kubeconfig")
    return read_kubeconfig(Path(os.environ[KUBECONFIG]))


async def account(access: Access, name: str, roles: Iterable[Any], made: list[str]) -> KubeClient:
    """A service account with these roles, for objects of its own name; `made` learns what to take
    away."""
    api = opened(access)

    async def create(path: str, item: Any) -> None:
        await api.create(path, item)
        made.append(f"{path}/{item['metadata']['name']}")

    await create(ACCOUNTS, {"metadata": {"name": name}})
    who = [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}]
    for role in roles:
        role["metadata"]["name"] = name
        for rule in role["rules"]:
            if "resourceNames" in rule:
                rule["resourceNames"] = [name]
        space = "/namespaces/kube-system" if role["kind"] == "Role" else ""
        path = f"{ROLES}{space}/{role['kind'].lower()}"
        await create(f"{path}s", role)
        group = "rbac.authorization.k8s.io"
        reference = {"apiGroup": group, "kind": role["kind"], "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": who}
        await create(f"{path}bindings", binding)
    asked = {"spec": {"expirationSeconds": 3600, "audiences": None}}
    token = (await api.create(f"{ACCOUNTS}/{name}/token", asked))["status"]["token"]
    return opened(replace(access, token=str(token)))
