"""What the extender costs a real kube-scheduler: `python benchmarks/kube_scheduler.py --help`.

A real etcd, API server and kube-scheduler, the latter two built where they are missing as `make
e2e` builds them. Nodes are objects without kubelets. Pods are created first; then kube-scheduler
starts with its client's limits raised, and its own metrics tell how many pods it has placed. After
each run the pods are deleted. Three settings take turns:

  without   no extender
  empty     one that decides nothing: it names the nodes it was sent, and leaves binding to
            kube-scheduler. It shows what the protocol alone costs
  with      `gpumanager extender`

With `--claims` others do, which are compared with the first:

  without         pods with device IDs, no extender
  asked           the same pods; the extender that scores nodes for claims is asked about them too
  claims          a ResourceClaim for each pod, made before it, as the webhook's templates have it
  claims tiers    its requests with two alternatives
  claims scored   the first of these two, and nodes scored by `gpumanager extender --claims`

Nodes have ResourceSlices as agents publish them while all GPUs are free. No agent runs, so
the slices stay as they are while kube-scheduler places pods.

All processes share the machine's processors: what one of them works, the others wait.
"""

import argparse
import asyncio
import json
import os
import signal
import ssl
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiohttp import ClientSession, TCPConnector
from extender import empty, process
from extender.cluster import gpus_of, node_name, node_object, pod_object, shape_of
from machine_line import machine_line
from rich.console import Console
from rich.table import Table

from gpumanager.dra.slice import NodeGpus, resource_slice
from gpumanager.names import ANNOTATION_PLAN, CLAIM_DEVICE_CLASS, CLAIM_DRIVER, VCORE, VMEMORY
from gpumanager.placement.values import FreeGpus
from gpumanager.scheduler.claims.template import ClaimShape, RequestShape
from gpumanager.units import CORES_PER_GPU

sys.path.append(str(Path(__file__).parent.parent))
from tests.e2e.node import node_programs

WITHOUT, EMPTY, WITH = "without", "empty", "with"
ASKED, CLAIMS, TIERS, SCORED = "asked", "claims", "claims tiers", "claims scored"
VERBS: Final = {
    EMPTY: empty.VERBS,
    WITH: ("filter", "prioritize", "bind", "preempt"),
    ASKED: ("prioritize-claims",),
    SCORED: ("prioritize-claims",),
}
SETTINGS: Final = (WITHOUT, EMPTY, WITH)
CLAIM_SETTINGS: Final = (WITHOUT, ASKED, CLAIMS, TIERS, SCORED)
WITH_CLAIMS: Final = (CLAIMS, TIERS, SCORED)
PODS: Final = "/api/v1/namespaces/default/pods"
RESOURCES: Final = "/apis/resource.k8s.io/v1"
RESOURCE_CLAIMS: Final = f"{RESOURCES}/namespaces/default/resourceclaims"
CLASS: Final = {
    "metadata": {"name": CLAIM_DEVICE_CLASS},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{CLAIM_DRIVER}'"}}]},
}
BAR: Final = 85
"""Percent of the pods per second without the extender."""
API_PORT, ETCD_PORT, PEER_PORT, SCHEDULER_PORT = 17443, 17379, 17380, 17259
TOKEN: Final = "benchmark"
CLIENTS: Final = 32
READY_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.1
EDGE: Final = 0.1
"""Part of the pods at each end of a run that is not counted: caches and connections warm up."""
WITHOUT_CONTROLLERS: Final = (
    "ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds,Priority,RuntimeClass"
)
KUBECONFIG: Final = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "us"}}],
    "clusters": [{"name": "here", "cluster": {"server": f"https://127.0.0.1:{API_PORT}"}}],
    "users": [{"name": "us", "user": {"token": TOKEN}}],
}
SCHEDULED: Final = (
    'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}'
)
ANSWERED: Final = 'gpumanager_extender_requests_total{outcome="answered",verb="prioritize_claims"}'


@dataclass(frozen=True, slots=True)
class Run:
    """pods_per_second: of the middle of the run. extender, scheduler, api: processor milliseconds
    of these processes for each pod; api: etcd's too."""

    setting: str
    pods_per_second: float
    extender: float
    scheduler: float
    api: float


class Cluster:
    """etcd and an API server with nodes. folder: for all files. qps: of
    kube-scheduler."""

    def __init__(self, programs: Path, folder: Path, qps: int) -> None:
        self._programs = programs
        self._folder = folder
        self._client = {"qps": qps, "burst": 2 * qps}
        self._kubeconfig = folder / "kubeconfig.json"
        self.servers: list[int] = []
        """Process ids."""

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            where = f"http://127.0.0.1:{ETCD_PORT}"
            peers = f"http://127.0.0.1:{PEER_PORT}"
            etcd = ["etcd", "--data-dir", str(self._folder / "etcd"), "--unsafe-no-fsync"]
            etcd += ["--listen-client-urls", where, "--advertise-client-urls", where]
            etcd += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
            etcd += ["--initial-cluster", f"default={peers}"]
            self.servers = [stack.enter_context(self._started("etcd", etcd)).pid]
            (self._folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
            key = self._folder / "accounts.key"
            subprocess.run(
                ["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True
            )
            api = [
                str(self._programs / "kube-apiserver"),
                f"--etcd-servers={where}",
                *("--bind-address=127.0.0.1", f"--secure-port={API_PORT}"),
                *("--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"),
                f"--cert-dir={self._folder / 'certificates'}",
                f"--token-auth-file={self._folder / 'tokens.csv'}",
                "--authorization-mode=AlwaysAllow",
                "--enable-priority-and-fairness=false",
                *("--max-requests-inflight=0", "--max-mutating-requests-inflight=0"),
                f"--disable-admission-plugins={WITHOUT_CONTROLLERS}",
                "--service-account-issuer=https://kubernetes.default.svc",
                *(f"--service-account-{one}-file={key}" for one in ("key", "signing-key")),
                "--service-cluster-ip-range=10.96.0.0/16",
            ]
            self.servers.append(stack.enter_context(self._started("kube-apiserver", api)).pid)
            self._until_ready(f"https://127.0.0.1:{API_PORT}/readyz")
            authority = {"certificate-authority": str(self._folder / "certificates/apiserver.crt")}
            config: Any = json.loads(json.dumps(KUBECONFIG))
            config["clusters"][0]["cluster"] |= authority
            self._kubeconfig.write_text(json.dumps(config))
            yield

    def place(self, pods: int, setting: str, seconds: float) -> Run:
        """Create as many pods, place them, and delete them. Raises SystemExit where it fails."""
        claims = setting in WITH_CLAIMS
        if claims:
            made = [_claim(number, tiers=setting == TIERS) for number in range(pods)]
            asyncio.run(_post(RESOURCE_CLAIMS, made))
        asyncio.run(_post(PODS, [_pod(number, claims=claims) for number in range(pods)]))
        with ExitStack() as stack:
            asked, verbs = None, VERBS.get(setting, ())
            if setting == EMPTY:
                asked = stack.enter_context(empty.extender())
            elif verbs:
                flags = () if setting == WITH else ("--claims",)
                asked = stack.enter_context(process.extender(self._kubeconfig, *flags))
            scheduler = stack.enter_context(self._scheduler(asked.port if asked else 0, verbs))
            before = [_worked(asked.pid) if asked else 0.0, sum(map(_worked, self.servers))]
            rate = _rate(pods, time.monotonic() + seconds)
            after = [_worked(asked.pid) if asked else 0.0, sum(map(_worked, self.servers))]
            spent = [1000 * (b - a) / pods for a, b in zip(before, after, strict=True)]
            found = Run(setting, rate, spent[0], 1000 * _worked(scheduler.pid) / pods, spent[1])
            if asked and setting in (ASKED, SCORED):
                _check_asked(asked.port, pods)
        asyncio.run(_check_and_delete(pods, planned=setting == WITH))
        if claims:
            asyncio.run(_delete_claims(pods))
        return found

    @contextmanager
    def _scheduler(
        self, extender: int, verbs: Sequence[str]
    ) -> Iterator["subprocess.Popen[bytes]"]:
        resources = [{"name": name, "ignoredByScheduler": False} for name in (VCORE, VMEMORY)]
        scores_only = verbs == VERBS[SCORED]
        asked = {
            "urlPrefix": f"http://127.0.0.1:{extender}/scheduler",
            **{f"{verb.partition('-')[0]}Verb": verb for verb in verbs},
            "weight": 5,
            "nodeCacheCapable": True,
            "httpTimeout": "15s",
            **({"ignorable": True} if scores_only else {"managedResources": resources}),
        }
        written = self._folder / "scheduler.json"
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self._kubeconfig), **self._client},
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": "default-scheduler"}],
            "extenders": [asked] if verbs else [],
        }
        written.write_text(json.dumps(configuration))
        command = [str(self._programs / "kube-scheduler"), "--config", str(written)]
        command += ["--bind-address=127.0.0.1", f"--secure-port={SCHEDULER_PORT}"]
        command += ["--authorization-always-allow-paths=/metrics,/healthz"]
        command += ["--cert-dir", str(self._folder / "scheduler")]
        with self._started("kube-scheduler", command) as started:
            yield started

    @contextmanager
    def _started(self, name: str, command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
        with (self._folder / f"{name}.log").open("ab") as log:
            started = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
            try:
                yield started
            except BaseException:
                tail = (self._folder / f"{name}.log").read_text(errors="replace").splitlines()[-5:]
                print(f"{name}: {started.poll()}", *tail, sep="\n", file=sys.stderr)
                raise
            finally:
                started.send_signal(signal.SIGKILL if name == "etcd" else signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    started.wait(20)
                started.kill()
                started.wait()

    def _until_ready(self, url: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while _text(url) != "ok":
            if time.monotonic() > deadline:
                raise SystemExit(f"{url} does not become ready")
            time.sleep(0.2)


def _text(url: str) -> str:
    """The body of the answer; empty where the server does not answer."""
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(asked, timeout=10, context=_trusting()) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _trusting() -> ssl.SSLContext:
    """The servers here have signed their certificates themselves."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _rate(pods: int, deadline: float) -> float:
    """Pods a second, from when a tenth is placed until nine tenths are."""
    first, last = EDGE * pods, (1 - EDGE) * pods
    began: tuple[float, float] | None = None
    ended: tuple[float, float] | None = None
    while time.monotonic() < deadline:
        rows = _text(f"https://127.0.0.1:{SCHEDULER_PORT}/metrics").splitlines()
        now = time.monotonic()
        count = next((float(row.split()[-1]) for row in rows if row.startswith(SCHEDULED)), 0.0)
        if began is None and count >= first:
            began = now, count
        if ended is None and count >= last:
            ended = now, count
        if count >= pods and began and ended:
            return (ended[1] - began[1]) / (ended[0] - began[0])
        time.sleep(POLL_SECONDS)
    raise SystemExit(f"not all of {pods} pods are placed in time: {count:.0f}")


async def _post(path: str, items: list[dict[str, Any]]) -> None:
    waiting = iter(items)

    async def some() -> None:
        for item in waiting:
            async with session.post(path, json=item) as answer:
                if answer.status >= 300:
                    raise SystemExit(f"{path}: {answer.status} {await answer.text()}")

    async with _session() as session:
        await asyncio.gather(*(some() for _ in range(CLIENTS)))


async def _check_and_delete(pods: int, *, planned: bool) -> None:
    """Raises SystemExit where a pod has no node, or no plan though there was an extender."""
    async with _session() as session:
        async with session.get(PODS) as answer:
            items = (await answer.json(content_type=None))["items"]
        placed = [one for one in items if one["spec"].get("nodeName")]
        plans = [one for one in placed if ANNOTATION_PLAN in one["metadata"].get("annotations", {})]
        if len(placed) != pods or len(plans) != (pods if planned else 0):
            raise SystemExit(f"{len(placed)} of {pods} pods have a node, {len(plans)} a plan")
        now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        async with session.delete(PODS, json=now) as answer:
            await answer.read()
        await _until_none(session, PODS)


async def _delete_claims(pods: int) -> None:
    """As the claim controller and the garbage collector do. Raises SystemExit where one of the
    claims has no allocation, or a GPU has more than it can have."""
    given: Counter[tuple[str, str]] = Counter()
    async with _session() as session:
        async with session.get(RESOURCE_CLAIMS) as answer:
            items = (await answer.json(content_type=None))["items"]
        held = [one["status"]["allocation"] for one in items if one.get("status")]
        for one in (result for each in held for result in each["devices"]["results"]):
            given[one["pool"], one["device"]] += int(one["consumedCapacity"]["cores"])
        if len(held) != pods or max(given.values()) > CORES_PER_GPU:
            raise SystemExit(
                f"{len(held)} of {pods} claims are allocated, of {given.most_common(1)}"
            )
        names = iter([one["metadata"]["name"] for one in items])

        async def release() -> None:
            kind = {"Content-Type": "application/merge-patch+json"}
            for name in names:
                path = f"{RESOURCE_CLAIMS}/{name}"
                free = json.dumps({"metadata": {"finalizers": None}})
                async with session.patch(path, data=free, headers=kind) as answer:
                    await answer.read()
                async with session.delete(path) as answer:
                    await answer.read()

        await asyncio.gather(*(release() for _ in range(CLIENTS)))
        await _until_none(session, RESOURCE_CLAIMS)


async def _until_none(session: ClientSession, path: str) -> None:
    while True:
        async with session.get(path, params={"limit": "1"}) as answer:
            if not (await answer.json(content_type=None))["items"]:
                return
        await asyncio.sleep(0.5)


def _check_asked(port: int, pods: int) -> None:
    """Raises SystemExit where the extender was not asked about the pods."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        rows = answer.read().decode().splitlines()
    counts = [float(row.split()[-1]) for row in rows if row.startswith(ANSWERED)]
    if sum(counts) < pods:
        raise SystemExit(f"the extender was asked {sum(counts):.0f} times about {pods} pods")


def _session() -> ClientSession:
    return ClientSession(
        f"https://127.0.0.1:{API_PORT}",
        connector=TCPConnector(ssl=_trusting(), limit=CLIENTS),
        headers={"Authorization": f"Bearer {TOKEN}"},
    )


def _pod(number: int, *, claims: bool = False) -> dict[str, Any]:
    """Without a UID, which the API server gives. claims: with one in the place of device IDs."""
    pod = pod_object(number)
    metadata = {k: v for k, v in pod["metadata"].items() if k != "uid"}
    if not claims:
        return {**pod, "metadata": metadata}
    (container,) = pod["spec"]["containers"]
    host = {
        part: {k: v for k, v in amounts.items() if k not in (VCORE, VMEMORY)}
        for part, amounts in container["resources"].items()
    }
    resources = {**host, "claims": [{"name": "vcuda", "request": "main"}]}
    used = [{"name": "vcuda", "resourceClaimName": metadata["name"]}]
    spec = {**pod["spec"], "resourceClaims": used}
    return {
        **pod,
        "metadata": metadata,
        "spec": {**spec, "containers": [{**container, "resources": resources}]},
    }


def _claim(number: int, *, tiers: bool) -> dict[str, Any]:
    """Of the pod of this number, as its template would make it."""
    asked = shape_of(number)
    request = RequestShape("main", asked.cores, asked.blocks)
    template = ClaimShape.of((request,), {}, tiers=tiers).template("default")
    metadata = {"name": pod_object(number)["metadata"]["name"], "namespace": "default"}
    return {"metadata": metadata, "spec": template["spec"]["spec"]}


def _slice(number: int) -> dict[str, Any]:
    """Of the node of this number, all of whose GPUs are free."""
    gpus = gpus_of(number)
    return resource_slice(node_name(number), "", NodeGpus(gpus, FreeGpus.of_idle(gpus)))


def _worked(pid: int) -> float:
    return process.Process(pid, 0, 0.0).worked


def measure(nodes: int, options: argparse.Namespace, programs: Path) -> list[Run]:
    """Runs of all settings, in turns."""
    with TemporaryDirectory(prefix="gmsched") as folder:
        cluster = Cluster(programs, Path(folder), options.qps)
        with cluster.running():
            asyncio.run(_post("/api/v1/nodes", [node_object(number) for number in range(nodes)]))
            if options.claims:
                asyncio.run(_post(f"{RESOURCES}/deviceclasses", [CLASS]))
                slices = [_slice(number) for number in range(nodes)]
                asyncio.run(_post(f"{RESOURCES}/resourceslices", slices))
            runs = []
            for setting in settings_of(options) * options.runs:
                one = cluster.place(options.pods, setting, options.seconds)
                print(f"{nodes} nodes: {one}", file=sys.stderr)
                runs.append(one)
    return runs


def summary(nodes: int, pods: int, runs: list[Run]) -> dict[str, Any]:
    """Medians. percents: of what there is without an extender, in the same turn."""
    by_setting: dict[str, list[Run]] = {}
    for one in runs:
        by_setting.setdefault(one.setting, []).append(one)
    before = [one.pods_per_second for one in by_setting[WITHOUT]]
    found: dict[str, Any] = {"nodes": nodes, "pods": pods}
    for name, some in by_setting.items():
        percents = [100 * one.pods_per_second / b for one, b in zip(some, before, strict=True)]
        found[name] = {
            "percent": statistics.median(percents),
            "percents": [round(one, 1) for one in percents],
            **{
                field: statistics.median(getattr(one, field) for one in some)
                for field in ("pods_per_second", "extender", "scheduler", "api")
            },
        }
    return found


def show(found: list[dict[str, Any]], console: Console) -> None:
    load = f"load {os.getloadavg()[0]:.1f}"
    table = Table(box=None, pad_edge=False, title=f"{machine_line()}, {load}")
    titles = "nodes", "pods", "setting", "pods/s", f"% (bar {BAR})", "each turn"
    for title in (*titles, "processor, ms a pod: extender", "kube-scheduler", "API server, etcd"):
        table.add_column(title, justify="right")
    for one in found:
        for name in (name for name in (*SETTINGS, *CLAIM_SETTINGS[1:]) if name in one):
            row = one[name]
            table.add_row(
                *(f"{one['nodes']:,}", f"{one['pods']:,}", name),
                *(f"{row['pods_per_second']:.0f}", f"{row['percent']:.0f}"),
                " ".join(f"{percent:.0f}" for percent in row["percents"]),
                *(f"{row[field]:.1f}" for field in ("extender", "scheduler", "api")),
            )
    console.print(table)


def settings_of(options: argparse.Namespace) -> tuple[str, ...]:
    return CLAIM_SETTINGS if options.claims else SETTINGS


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 5_000])
    parser.add_argument("--pods", type=int, default=1_000, help="to place in each run")
    parser.add_argument("--runs", type=int, default=3, help="of each setting")
    parser.add_argument("--seconds", type=float, default=300.0, help="the longest run")
    parser.add_argument(
        "--qps",
        type=int,
        default=5_000,
        help="requests a second of kube-scheduler; usually 50",
    )
    parser.add_argument("--version", default=node_programs.wanted(), help="of Kubernetes")
    parser.add_argument("--claims", action="store_true", help="the settings with claims instead")
    parser.add_argument("--json", action="store_true", help="figures for programs")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    options = arguments(words)
    try:
        programs = node_programs.build(options.version)
    except node_programs.CannotBuild as error:
        sys.exit(f"cannot build: {error}")
    found = [
        summary(nodes, options.pods, measure(nodes, options, programs)) for nodes in options.nodes
    ]
    if options.json:
        print(
            json.dumps(
                {"machine": machine_line(), "version": options.version, "clusters": found}, indent=1
            )
        )
    else:
        show(found, Console())
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    sys.exit(main(sys.argv[1:]))
