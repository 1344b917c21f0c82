"""What to make of a node that serves claims: the driver, its slice, its CDI files. Pure."""

from collections.abc import Iterator, Sequence

from gpumanager.doctor.values import (
    ClaimObjects,
    ClaimsView,
    Finding,
    ListeningSocket,
    Unseen,
    note,
    well,
    wrong,
)
from gpumanager.names import CLAIM_DEVICE_CLASS, CLAIM_DRIVER

Findings = Iterator[Finding]
SHOWN = 3
"""Names of a long list."""
UNREADY = "answered 503"
EXPLAIN = "gpumanager explain claim NAMESPACE/NAME says why"


def about_claims(view: ClaimsView) -> Findings:
    yield from registration(view)
    yield from cdi(view)
    if isinstance(view.objects, Unseen):
        yield wrong(
            "claims API",
            view.objects.cause,
            "check --kubeconfig or the pod's service account; "
            "resource.k8s.io/v1 is served from Kubernetes 1.34 on",
        )
    else:
        yield well("claims API", "resource.k8s.io/v1 is served")
        yield from device_class(view.objects)
        yield from rights(view.objects)
        yield from resource_slice(view.objects)
        yield from prepared(view, view.objects)
    yield from cdi_files(view)


def registration(view: ClaimsView) -> Findings:
    """Check it by its socket, and by what the kubelet has reported to the agent."""
    found = f"{CLAIM_DRIVER}: {view.socket.value} in {view.registry}"
    if view.socket is not ListeningSocket.LISTENS:
        yield wrong(
            "DRA plugin",
            found,
            "start the agent; in a container, mount the kubelet's plugins_registry and plugins",
        )
    elif isinstance(view.ready, Unseen):
        refused = UNREADY in view.ready.cause
        say = wrong if refused else note
        advice = "read the agent's log, and the kubelet's: it refuses a driver with a reason"
        yield say("DRA plugin", f"{found}; the agent {view.ready.cause}", advice)
    else:
        yield well("DRA plugin", f"{found}; the agent is ready")


def cdi(view: ClaimsView) -> Findings:
    if view.cdi_obstacle:
        found, _, advice = view.cdi_obstacle.partition(": ")
        yield wrong("CDI support", found, advice or "start the container runtime")
    else:
        yield well("CDI support", f"the container runtime reads {view.cdi_directory}")


def device_class(objects: ClaimObjects) -> Findings:
    match objects.device_class:
        case Unseen(cause):
            ask = f"kubectl get deviceclass {CLAIM_DEVICE_CLASS} shows it"
            yield note("DeviceClass", cause, ask)
        case True:
            yield well("DeviceClass", CLAIM_DEVICE_CLASS)
        case _:
            yield wrong(
                "DeviceClass",
                f"{CLAIM_DEVICE_CLASS} does not exist",
                "no claim can ask for a GPU: install the chart with agent.interface=claims",
            )


def rights(objects: ClaimObjects) -> Findings:
    match objects.denied:
        case Unseen(cause):
            yield note(
                "permissions", cause, "check with kubectl auth can-i --as the agent's account"
            )
        case ():
            yield well("permissions", "may read claims, and write the node's slice")
        case denied:
            lacking = f"may not {', '.join(denied)}"
            yield wrong(
                "permissions", lacking, "give them to the agent's account, as the chart does"
            )


def resource_slice(objects: ClaimObjects) -> Findings:
    match objects.slice_differences:
        case Unseen(cause):
            yield note("ResourceSlice", cause, "see the rows above")
        case None:
            yield wrong(
                "ResourceSlice",
                "the node has none: no claim is allocated here",
                "the agent writes it once it listens; if not, its log says why",
            )
        case ():
            yield well("ResourceSlice", f"{objects.devices} GPUs, as the agent would write it")
        case differences:
            yield note(
                "ResourceSlice",
                _some(differences),
                "the agent writes changes within a second; what stays is in its log, or was "
                "dropped by an API server without DRAConsumableCapacity (on from Kubernetes 1.36)",
            )


def prepared(view: ClaimsView, objects: ClaimObjects) -> Findings:
    """Return the journal beside the API server."""
    if isinstance(view.prepared, Unseen):
        return  # the journal has a row of its own
    gone = [name for uid, name in view.prepared.items() if uid not in objects.claims]
    waiting = [name for uid, name in objects.allocated.items() if uid not in view.prepared]
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
        yield well("claims", f"prepared: {len(view.prepared)}")


def cdi_files(view: ClaimsView) -> Findings:
    if isinstance(view.prepared, Unseen):
        return
    if isinstance(view.cdi_files, Unseen):
        yield wrong(
            "CDI files", view.cdi_files.cause, "give the agent a directory that it can write to"
        )
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


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
