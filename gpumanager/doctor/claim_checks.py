"""What to make of a node that serves claims: the driver, its slice, its CDI files. Pure."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from gpumanager.doctor.question import Unseen
from gpumanager.doctor.values import Findings, ListeningSocket, check, note, row, well, wrong
from gpumanager.names import CLAIM_DEVICE_CLASS, CLAIM_DRIVER

SHOWN: Final = 3
"""Names of a long list."""
UNREADY: Final = "answered 503"
EXPLAIN: Final = "gpumanager explain claim NAMESPACE/NAME says why"


@check("DRA plugin")
def registration(registration: ListeningSocket, registry: Path, ready: str | Unseen) -> Findings:
    """Check it by its socket in the registry, and by what the agent says of itself."""
    found = f"{CLAIM_DRIVER}: {registration.value} in {registry}"
    if registration is not ListeningSocket.LISTENS:
        advice = "start the agent; in a container, mount the kubelet's plugins_registry and plugins"
        yield wrong(found, advice)
    elif isinstance(ready, Unseen):
        say = wrong if UNREADY in ready.cause else note
        advice = "read the agent's log, and the kubelet's: it refuses a driver with a reason"
        yield say(f"{found}; the agent {ready.cause}", advice)
    else:
        yield well(f"{found}; the agent is ready")


@check("CDI support", wrong, "start the container runtime")
def cdi(cdi_obstacle: str, cdi_directory: Path) -> Findings:
    """cdi_obstacle: why the runtime ignores CDI files, empty where it does not."""
    found, _, advice = cdi_obstacle.partition(": ")
    yield wrong(found, advice) if found else well(f"the container runtime reads {cdi_directory}")


@check("ResourceSlice", note, "see the rows above")
def resource_slice(slice_differences: Sequence[str] | None, devices: int) -> Findings:
    """slice_differences: between the node's slice and what an agent would write; None: there is no
    slice. devices: that it has."""
    if slice_differences is None:
        yield wrong(
            "the node has none: no claim is allocated here",
            "the agent writes it once it listens; if not, its log says why",
        )
    elif slice_differences:
        yield note(
            _some(slice_differences),
            "the agent writes changes within a second; what stays is in its log, or was "
            "dropped by an API server without DRAConsumableCapacity (on from Kubernetes 1.36)",
        )
    else:
        yield well(f"{devices} GPUs, as the agent would write it")


@check("claims", after=("prepared",))  # the journal has a row of its own
def prepared_claims(
    prepared: Mapping[str, str], claims: Mapping[str, str], allocated: Mapping[str, str]
) -> Findings:
    """prepared: claims in the journal, by UID. claims: of the API server, of all namespaces;
    allocated: those that pods use here."""
    gone = [name for uid, name in prepared.items() if uid not in claims]
    waiting = [name for uid, name in allocated.items() if uid not in prepared]
    if gone:
        yield note(
            f"prepared, and gone from the API server: {_some(gone)}",
            "the kubelet releases it with its last container, and the agent a claim that nobody "
            "unprepares; gpumanager tree shows who has it",
        )
    if waiting:
        yield note(f"in use by pods, and not prepared: {_some(waiting)}", EXPLAIN)
    if not (gone or waiting):
        yield well(f"prepared: {len(prepared)}")


@check("CDI files", wrong, "give the agent a directory that it can write to", after=("prepared",))
def files_of_claims(
    cdi_files: Collection[str], prepared: Mapping[str, str], cdi_directory: Path
) -> Findings:
    """cdi_files: UIDs of their claims."""
    missing = [name for uid, name in prepared.items() if uid not in cdi_files]
    if missing:
        yield wrong(
            f"missing in {cdi_directory}: of {_some(missing)}",
            "their containers cannot restart; a running agent writes the files again, or its log "
            "says why not",
        )
    if left := sorted({*cdi_files} - prepared.keys()):
        yield note(
            f"without a grant in {cdi_directory}: of claims {_some(left)}",
            "a running agent removes them, or its log says why not",
        )
    if not (missing or left):
        yield well(f"{len(cdi_files)}, one for each claim")


CLAIM_CHECKS: Final = (
    registration, cdi,
    row("claims API", "claims_api", "{} is served",
        unseen=(wrong, ("check --kubeconfig or the pod's service account; resource.k8s.io/v1 is "
                "served from Kubernetes 1.34 on"))),
    row("DeviceClass", "device_class", CLAIM_DEVICE_CLASS,
        bad=(wrong, f"{CLAIM_DEVICE_CLASS} does not exist",
             "no claim can ask for a GPU: install the chart with agent.interface=claims"),
        unseen=(note, f"kubectl get deviceclass {CLAIM_DEVICE_CLASS} shows it")),
    row("permissions", "denied", "may read claims, and write the node's slice",
        bad=(wrong, "may not {}", "give them to the agent's account, as the chart does"),
        unseen=(note, "check with kubectl auth can-i --as the agent's account")),
    resource_slice, prepared_claims, files_of_claims,
)  # fmt: skip


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
