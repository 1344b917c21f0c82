"""The inputs of the doctor's checks of a node that serves claims. Nothing is changed."""

import contextlib
from http import HTTPStatus
from typing import Any, Final

from gpumanager.cli.node_agents import fetch
from gpumanager.doctor.question import DoctorQuestion, Unseen
from gpumanager.dra.slice import PATH as SLICES
from gpumanager.dra.slice import NodeGpus, devices, differences, slice_name
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.device_attributes import device_attributes
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import ClaimSource, Grant
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.offers import OfferFile
from gpumanager.isolation.cdi import PREFIX, SUFFIX
from gpumanager.kube.access import find_access, node_name
from gpumanager.kube.claims import NotAClaim, list_devices, list_users
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused, Object
from gpumanager.names import CLAIM_DEVICE_CLASS, CLAIM_DRIVER
from gpumanager.settings import AgentSettings

API: Final = "/apis/resource.k8s.io/v1"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RIGHTS: Final = (
    *(("resource.k8s.io", "resourceclaims", verb) for verb in ("get", "list", "watch")),
    *(("resource.k8s.io", "resourceslices", verb) for verb in ("list", "watch", "create", "patch")),
    *(("", "pods", verb) for verb in ("get", "list", "watch")),
    ("", "nodes", "get"),
)


async def read_claim_inputs(
    settings: AgentSettings,
    topology: Topology | Unseen,
    driver: str,
    grants: tuple[Grant, ...] | Unseen,
) -> dict[str, Any]:
    """Return what claims need, by name. driver: its version."""
    ready = DoctorQuestion(lambda: fetch(agent_url(settings), "/readyz").decode())
    files = DoctorQuestion(
        lambda: [
            path.name.removeprefix(PREFIX).removesuffix(SUFFIX)
            for path in settings.cdi_path.glob(f"{PREFIX}*{SUFFIX}")
        ]
    )
    prepared: dict[str, str] | Unseen
    if isinstance(grants, Unseen):
        prepared = grants
    else:
        sources = [one.source for one in grants if isinstance(one.source, ClaimSource)]
        prepared = {one.uid: f"{one.namespace}/{one.name}" for one in sources}
    return {
        "registry": settings.plugins_registry_path,
        "ready": ready.answer(),
        "cdi_directory": settings.cdi_path,
        "cdi_files": files.answer(),
        "prepared": prepared,
        **await _objects(settings, topology, driver, grants),
    }


def agent_url(settings: AgentSettings) -> str:
    """Return where an agent with these settings serves its pages."""
    address = settings.query_addr
    host = "localhost" if address in {"0.0.0.0", "::", ""} else address
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.query_port}"


async def _objects(
    settings: AgentSettings,
    topology: Topology | Unseen,
    driver: str,
    grants: tuple[Grant, ...] | Unseen,
) -> dict[str, Any]:
    """Return what the API server has."""
    node = node_name(settings.hostname_override)
    try:
        async with KubeClient(find_access(settings.kubeconfig), agent="gpumanager-doctor") as api:
            slices, claims = list[Object](), list[Object]()
            await api.list(SLICES, slices.append, fieldSelector=f"spec.driver={CLAIM_DRIVER}")
            await api.list(f"{API}/resourceclaims", claims.append)
            found = next((o for o in slices if o["metadata"]["name"] == slice_name(node)), None)
            device_class: bool | Unseen = True
            try:
                await api.get(f"{API}/deviceclasses/{CLAIM_DEVICE_CLASS}")
            except ApiRefused as error:
                missing = error.status == HTTPStatus.NOT_FOUND
                device_class = False if missing else Unseen(str(error))
            allocated = {}  # to pods of this node, as far as the API server knows
            for one in claims:
                with contextlib.suppress(NotAClaim):
                    here = any(device.pool == node for device in list_devices(one))
                    if here and list_users(one):
                        allocated[one["metadata"]["uid"]] = _name(one)
            return {
                "claims_api": API.removeprefix("/apis/"),
                "device_class": device_class,
                "denied": await denied_rights(api),
                "devices": len(found["spec"].get("devices") or ()) if found else 0,
                "slice_differences": await _differences(settings, topology, driver, grants, found),
                "claims": {one["metadata"]["uid"]: _name(one) for one in claims},
                "allocated": allocated,
            }
    except (GpuManagerError, LookupError, TypeError, AttributeError) as error:
        return {"claims_api": Unseen(str(error))}


def _name(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


async def denied_rights(api: KubeClient) -> tuple[str, ...] | Unseen:
    """Return those rights that an agent needs and its account does not have."""
    denied = []
    for group, resource, verb in RIGHTS:
        asked = {"group": group, "resource": resource, "verb": verb}
        review: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        try:
            answer = await api.create(REVIEWS, review)
        except ApiRefused as error:
            return Unseen(f"the API server does not tell what this account may do: {error.status}")
        if not (answer.get("status") or {}).get("allowed"):
            denied.append(f"{verb} {resource}")
    return tuple(denied)


async def _differences(
    settings: AgentSettings,
    topology: Topology | Unseen,
    driver: str,
    grants: tuple[Grant, ...] | Unseen,
    found: Object | None,
) -> tuple[str, ...] | Unseen | None:
    """Compare what is published with what an agent would write, but for order and taints, which are
    of the moment."""
    if found is None:
        return None
    if isinstance(topology, Unseen) or isinstance(grants, Unseen):
        return Unseen("is published; whether it is right cannot be told without GPUs and journal")
    ours = [one for one in grants if isinstance(one.source, ClaimSource)]
    others = (one for one in grants if not isinstance(one.source, ClaimSource))
    known = await device_attributes(NvmlService(), topology, settings.driver_root / "sys")
    offers, elsewhere = OfferFile(settings.checkpoint_path), frozenset[GpuUUID]()
    if offers.path.exists():
        elsewhere = frozenset(gpu.uuid for gpu in topology.gpus) - offers.read()
    wanted = NodeGpus(
        topology,
        Ledger(topology).unheld(ours),
        withheld=elsewhere.union(gpu for one in others for gpu in one.gpus),
        driver=driver,
        known=known,
    )
    return differences(found["spec"].get("devices") or (), devices(wanted))
