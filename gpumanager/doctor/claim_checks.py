"""What to make of a node that serves claims: the driver, its slice, its CDI files. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpumanager.doctor.question import Unseen
from gpumanager.doctor.values import (
    ClaimObjects,
    Finding,
    ListeningSocket,
    ObservedClaims,
    note,
    well,
    wrong,
)
from gpumanager.names import CLAIM_DEVICE_CLASS, CLAIM_DRIVER

Findings = Iterator[Finding]

SHOWN: Final = 3
"""Names of a long list."""
UNREADY: Final = "answered 503"
EXPLAIN: Final = "gpumanager explain claim NAMESPACE/NAME says why"


def registration(view: ObservedClaims) -> Findings:
    """Check it by its socket, and by what the kubelet has reported to the agent."""
    found = f"{CLAIM_DRIVER}: {view.socket.value} in {view.registry}"
    if view.socket is not ListeningSocket.LISTENS:
        advice = "start the agent; in a container, mount the kubelet's plugins_registry and plugins"
        yield wrong("DRA plugin", found, advice)
    elif isinstance(view.ready, Unseen):
        say = wrong if UNREADY in view.ready.cause else note
        advice = "read the agent's log, and the kubelet's: it refuses a driver with a reason"
        yield say("DRA plugin", f"{found}; the agent {view.ready.cause}", advice)
    else:
        yield well("DRA plugin", f"{found}; the agent is ready")


def cdi(view: ObservedClaims) -> Findings:
    if isinstance(view.cdi_obstacle, Unseen):
        yield wrong("CDI support", view.cdi_obstacle.cause, "start the container runtime")
    elif view.cdi_obstacle:
        found, _, advice = view.cdi_obstacle.partition(": ")
        yield wrong("CDI support", found, advice)
    else:
        yield well("CDI support", f"the container runtime reads {view.cdi_directory}")


def api(view: ObservedClaims) -> Findings:
    if isinstance(view.objects, Unseen):
        yield wrong(
            "claims API",
            view.objects.cause,
            "check --kubeconfig or the pod's service account; "
            "resource.k8s.io/v1 is served from Kubernetes 1.34 on",
        )
        return
    yield well("claims API", "resource.k8s.io/v1 is served")
    yield _device_class(view.objects)
    yield _rights(view.objects)
    yield _slice(view.objects)
    if not isinstance(view.prepared, Unseen):  # the journal has a row of its own
        yield from _prepared(view.prepared, view.objects)


def cdi_files(view: ObservedClaims) -> Findings:
    if isinstance(view.prepared, Unseen):
        return
    if isinstance(view.cdi_files, Unseen):
        advice = "give the agent a directory that it can write to"
        yield wrong("CDI files", view.cdi_files.cause, advice)
        return
    missing = [name for uid, name in view.prepared.items() if uid not in view.cdi_files]
    if missing:
        yield wrong(
            "CDI files",
            f"missing in {view.cdi_directory}: of {_some(missing)}",
            "their containers cannot restart; a running agent writes the files again, or its log "
            "says why not",
        )
    if left := sorted(view.cdi_files - view.prepared.keys()):
        yield note(
            "CDI files",
            f"without a grant in {view.cdi_directory}: of claims {_some(left)}",
            "a running agent removes them, or its log says why not",
        )
    if not (missing or left):
        yield well("CDI files", f"{len(view.cdi_files)}, one for each claim")


CLAIM_CHECKS: Final = (registration, cdi, api, cdi_files)


def _device_class(objects: ClaimObjects) -> Finding:
    match objects.device_class:
        case Unseen(cause):
            return note(
                "DeviceClass", cause, f"kubectl get deviceclass {CLAIM_DEVICE_CLASS} shows it"
            )
        case True:
            return well("DeviceClass", CLAIM_DEVICE_CLASS)
        case _:
            advice = "no claim can ask for a GPU: install the chart with agent.interface=claims"
            return wrong("DeviceClass", f"{CLAIM_DEVICE_CLASS} does not exist", advice)


def _rights(objects: ClaimObjects) -> Finding:
    match objects.denied:
        case Unseen(cause):
            advice = "check with kubectl auth can-i --as the agent's account"
            return note("permissions", cause, advice)
        case ():
            return well("permissions", "may read claims, and write the node's slice")
        case denied:
            advice = "give them to the agent's account, as the chart does"
            return wrong("permissions", f"may not {', '.join(denied)}", advice)


def _slice(objects: ClaimObjects) -> Finding:
    match objects.slice_differences:
        case Unseen(cause):
            return note("ResourceSlice", cause, "see the rows above")
        case None:
            return wrong(
                "ResourceSlice",
                "the node has none: no claim is allocated here",
                "the agent writes it once it listens; if not, its log says why",
            )
        case ():
            found = f"{objects.devices} GPUs, as the agent would write it"
            return well("ResourceSlice", found)
        case differences:
            return note(
                "ResourceSlice",
                _some(differences),
                "the agent writes changes within a second; what stays is in its log, or was "
                "dropped by an API server without DRAConsumableCapacity (on from Kubernetes 1.36)",
            )


def _prepared(prepared: Mapping[str, str], objects: ClaimObjects) -> Findings:
    """Compare the journal with the API server."""
    gone = [name for uid, name in prepared.items() if uid not in objects.claims]
    waiting = [name for uid, name in objects.allocated.items() if uid not in prepared]
    if gone:
        yield note(
            "claims",
            f"prepared, and gone from the API server: {_some(gone)}",
            "the kubelet releases it with its last container, and the agent a claim that nobody "
            "unprepares; gpumanager tree shows who has it",
        )
    if waiting:
        yield note("claims", f"in use by pods, and not prepared: {_some(waiting)}", EXPLAIN)
    if not (gone or waiting):
        yield well("claims", f"prepared: {len(prepared)}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
