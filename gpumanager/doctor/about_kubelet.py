"""What to make of a node's kubelet, and of the agent that it may know already. Pure."""

from collections.abc import Iterator

from gpumanager.doctor.values import (
    Finding,
    KubeletView,
    ListeningSocket,
    Unseen,
    note,
    well,
    wrong,
)

Findings = Iterator[Finding]


def about_kubelet(view: KubeletView) -> Findings:
    for check in (kubelet_socket, agent, kubelet_pods, kubelet_checkpoint, pod_resources):
        yield from check(view)


def kubelet_socket(view: KubeletView) -> Findings:
    advice = {
        ListeningSocket.ABSENT: "start the kubelet; in a container, mount this directory of the "
        "node, or name another with --device-plugin-path",
        ListeningSocket.DEAD: "start the kubelet: it left this socket when it ended",
        ListeningSocket.DENIED: "run as root, and check whether SELinux or AppArmor denies it",
    }
    found = f"{view.socket}: {view.listener.value}"
    if view.listener is not ListeningSocket.LISTENS:
        yield wrong("kubelet", found, advice[view.listener])
    elif isinstance(view.version, Unseen):
        yield well("kubelet", f"{found}; version unknown")
    else:
        yield well("kubelet", f"{found}; version {view.version}")


def agent(view: KubeletView) -> Findings:
    states = set(view.sockets)
    if states == {ListeningSocket.LISTENS}:
        yield well("agent", "runs")
    elif ListeningSocket.DENIED in states:
        yield note("agent", "its sockets may not be opened", "run as root to see whether it runs")
    else:
        yield note("agent", "does not run", "start it: gpumanager agent")


def kubelet_pods(view: KubeletView) -> Findings:
    match view.pods:
        case Unseen(cause):
            yield wrong(
                "pods",
                cause,
                "check --kubelet-endpoint and --kubelet-token, whose account needs `get` on "
                "nodes/proxy (from Kubernetes 1.33 on nodes/pods)",
            )
        case pods:
            yield well("pods", f"{pods} listed by the kubelet")


def kubelet_checkpoint(view: KubeletView) -> Findings:
    match view.held:
        case None:
            yield well("device checkpoint", "none yet: no pod got a device")
        case Unseen(cause):
            yield wrong(
                "device checkpoint",
                cause,
                "restart the kubelet, which rewrites it; in a container, mount its directory",
            )
        case held:
            yield well("device checkpoint", f"pods hold {held}")


def pod_resources(view: KubeletView) -> Findings:
    match view.pod_resources:
        case Unseen(cause):
            yield note(
                "PodResources",
                cause,
                "mount the kubelet's pod-resources directory, or name its socket with "
                "--pod-resources-socket; until then the agent reads only its checkpoint",
            )
        case spoken:
            yield well("PodResources", spoken.value)
