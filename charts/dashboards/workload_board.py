"""A pod: what it was granted, what it used, where it was throttled and what it was refused."""

from typing import Final

from grafana_model import (
    FULL_IS_DEAR,
    ZERO_IS_GOOD,
    Board,
    Column,
    Key,
    Lines,
    Query,
    Row,
    Stat,
    Table,
    Variable,
)

IN_NAMESPACE: Final = 'namespace=~"$namespace"'
OWN: Final = f'{IN_NAMESPACE},pod=~"$pod",container=~"$container"'
NAME: Final = "{{pod}} {{container}} {{gpu}}"
USES: Final = f"gpumanager_claim_info{{{OWN}}}"


def own(expr: str) -> str:
    """expr: with `{}` for the labels to select by.

    Containers that share a claim have one series, under the name of the first of them. So a pod's
    series are those with its name, and those of the claims that it uses.
    """
    mine, shared = (expr.replace("{}", f"{{{one}}}") for one in (OWN, IN_NAMESPACE))
    return f"({mine} or {shared} and on (namespace, claim) {USES})"


def own_processes(name: str) -> str:
    """The same for series by container, which do not name the claim."""
    users = f"gpumanager_claim_info{{{IN_NAMESPACE}}} and on (namespace, claim) {USES}"
    shared = f"{name}{{{IN_NAMESPACE}}} and on (namespace, pod, container) ({users})"
    return f"({name}{{{OWN}}} or {shared})"


GRANTED: Final = own("gpumanager_container_share_granted_ratio{}")

OVERVIEW: Final = Row(
    "Overview",
    (
        Stat("GPU time granted", "Of one GPU, of all chosen containers together.", 4, 4,
             unit="percentunit", decimals=0, query=Query(f"sum({GRANTED})")),
        Stat("GPU time used", "In the last five minutes.", 4, 4, unit="percentunit", decimals=1,
             query=Query(f"sum({own('container:gpumanager_share_used:ratio{}')})")),
        Stat("Launches throttled", "Part of all kernel launches. A burst limit or a larger share "
             "helps.", 4, 4, unit="percentunit", decimals=0,
             steps=(("green", None), ("orange", 0.5)),
             query=Query(
                 f"sum({own('rate(gpumanager_container_launches_throttled_total{}[5m])')}) "
                 f"/ (sum({own('rate(gpumanager_container_launches_total{}[5m])')}) > 0)")),
        Stat("Memory limit", "On all GPUs together.", 4, 4, unit="bytes",
             query=Query(f"sum({own('gpumanager_container_memory_limit_bytes{}')})")),
        Stat("Memory used", "Part of the limit, of the fullest container.", 4, 4,
             unit="percentunit", decimals=0, steps=FULL_IS_DEAR,
             query=Query(f"max({own('container:gpumanager_memory_used:ratio{}')})")),
        Stat("Allocations refused, 1 h", "At the memory limit.", 4, 4, decimals=0,
             steps=(("green", None), ("orange", 1)),
             query=Query(
                 f"sum({own('increase(gpumanager_container_memory_refusals_total{}[1h])')})")),
    ),
)  # fmt: skip

COMPUTE: Final = Row(
    "Compute",
    (
        Lines("GPU time", "Used; dashed: the grant, and the ceiling up to which it may burst.",
              24, 9, unit="percentunit", legend="table",
              queries=(
                  Query(own("container:gpumanager_share_used:ratio{}"), NAME),
                  Query(GRANTED, f"granted: {NAME}", dashed=True),
                  Query(own("(gpumanager_container_share_ceiling_ratio{} "
                            "> gpumanager_container_share_granted_ratio{})"),
                        f"ceiling: {NAME}", dashed=True),
              )),
        Lines("Launches", "Kernels and graphs per second.", 8, 7, unit="ops",
              queries=(Query(own("rate(gpumanager_container_launches_total{}[5m])"), NAME),)),
        Lines("Launches throttled", "Part of all launches.", 8, 7, unit="percentunit", most=1,
              queries=(Query(own("container:gpumanager_launches_throttled:ratio_rate5m{}"),
                             NAME),)),
        Lines("Time throttled", "Seconds per second, all threads together.", 8, 7, unit="s",
              queries=(Query(own("rate(gpumanager_container_throttled_seconds_total{}[5m])"),
                             NAME),)),
    ),
)  # fmt: skip

MEMORY: Final = Row(
    "Memory",
    (
        Lines("GPU memory", "As reserved; for whole GPUs as the driver reports it. Dashed: the "
              "limit.", 16, 9, unit="bytes", legend="table",
              queries=(
                  Query(own("(gpumanager_container_memory_used_bytes{} "
                            "or gpumanager_container_memory_measured_bytes{})"), NAME),
                  Query(own("gpumanager_container_memory_limit_bytes{}"), f"limit: {NAME}",
                        "red", dashed=True),
              )),
        Lines("Allocations refused", "Per second, at the memory limit. Programs with a cache free "
              "some and retry.", 8, 9, unit="ops",
              queries=(Query(own("rate(gpumanager_container_memory_refusals_total{}[5m])"),
                             NAME),)),
    ),
)  # fmt: skip

CONTEXT: Final = Row(
    "GPUs, claims and processes",
    (
        Table("Pods that share a claim", "All pods of each claim that the chosen pods use. They "
              "share its limits; graphs show them under the first one's name.", 12, 7,
              keys=(Key("namespace", "Namespace"), Key("claim", "Claim"),
                    Key("pod", "Pod", "gpu-manager-workload"), Key("container", "Container")),
              columns=(
                  Column("Requests used",
                         "count by (namespace, claim, pod, container) "
                         f"(gpumanager_claim_info{{{IN_NAMESPACE}}} "
                         f"and on (namespace, claim) {USES})"),
              )),
        Lines("Utilization of its GPUs", "With all containers on them, as the driver reports it.",
              12, 7, unit="percentunit", most=1,
              queries=(Query("max by (node, gpu, uuid) (gpumanager_gpu_utilization_ratio "
                             f"and on (node, uuid) {GRANTED})", "{{node}} {{gpu}}"),)),
        Lines("Processes", "On the GPU, as the driver lists them.", 12, 7,
              queries=(Query(own("gpumanager_container_processes{}"), NAME),)),
        Stat("Processes with approximate limits", "Their shim lacks a prerequisite.", 6, 7,
             steps=ZERO_IS_GOOD,
             query=Query(f"sum({own_processes('gpumanager_container_degraded_processes')})")),
        Stat("Processes without limits", "No limit is enforced for them.", 6, 7,
             steps=ZERO_IS_GOOD,
             query=Query(f"sum({own_processes('gpumanager_container_unlimited_processes')})")),
    ),
)  # fmt: skip

SERIES: Final = '{{__name__=~"gpumanager_container_share_granted_ratio|gpumanager_claim_info"{}}}'

BOARD: Final = Board(
    uid="gpu-manager-workload",
    title="GPU manager / Workload",
    help="What a pod was granted of its GPUs, what it used, and where it was throttled or refused.",
    variables=(
        Variable("namespace", "Namespace", f"label_values({SERIES.format('')}, namespace)"),
        Variable("pod", "Pod", f"label_values({SERIES.format(f',{IN_NAMESPACE}')}, pod)",
                 several=True),
        Variable("container", "Container",
                 "label_values("
                 + SERIES.format(f',{IN_NAMESPACE},pod=~"$pod"') + ", container)",
                 several=True),
    ),
    rows=(OVERVIEW, COMPUTE, MEMORY, CONTEXT),
    hours=3,
)  # fmt: skip
