"""A pod: what it was granted, what it got, where it waited and what it was refused."""

from typing import Final

from grafana_model import FULL_IS_DEAR, ZERO_IS_GOOD, Board, Lines, Query, Row, Stat, Variable

OWN: Final = 'namespace=~"$namespace",pod=~"$pod",container=~"$container"'
NAME: Final = "{{pod}} {{container}} {{gpu}}"

GLANCE: Final = Row(
    "At a glance",
    (
        Stat("Share granted", "Percent of a GPU, of all chosen containers together.", 4, 4,
             unit="percent", decimals=0,
             query=Query(f"sum(gpumanager_container_share_promised_percent{{{OWN}}})")),
        Stat("Share used", "What they took in the last five minutes.", 4, 4, unit="percent",
             decimals=1, query=Query(f"sum(container:gpumanager_share_used:percent{{{OWN}}})")),
        Stat("Launches that waited", "Of all launches, those that had to wait for the share. A "
             "burst limit or a larger share helps.", 4, 4, unit="percentunit", decimals=0,
             steps=(("green", None), ("orange", 0.5)),
             query=Query(
                 f"sum(rate(gpumanager_container_launches_throttled_total{{{OWN}}}[5m])) "
                 f"/ (sum(rate(gpumanager_container_launches_total{{{OWN}}}[5m])) > 0)")),
        Stat("Memory limit", "On all GPUs together.", 4, 4, unit="bytes",
             query=Query(f"sum(gpumanager_container_memory_limit_bytes{{{OWN}}})")),
        Stat("Memory used", "Of the limit, where most is used.", 4, 4, unit="percentunit",
             decimals=0, steps=FULL_IS_DEAR,
             query=Query(f"max(container:gpumanager_memory_used:ratio{{{OWN}}})")),
        Stat("Refused in 1 h", "Requests for memory refused at the limit.", 4, 4, decimals=0,
             steps=(("green", None), ("orange", 1)),
             query=Query(
                 f"sum(increase(gpumanager_container_memory_refusals_total{{{OWN}}}[1h]))")),
    ),
)  # fmt: skip

COMPUTE: Final = Row(
    "Compute",
    (
        Lines("Share of the GPU's time", "What each took, the grant (dashed) and the ceiling up "
              "to which it may burst (dashed).", 24, 9, unit="percent", legend="table",
              queries=(
                  Query(f"container:gpumanager_share_used:percent{{{OWN}}}", NAME),
                  Query(f"gpumanager_container_share_promised_percent{{{OWN}}}",
                        f"granted: {NAME}", dashed=True),
                  Query(f"gpumanager_container_share_ceiling_percent{{{OWN}}} "
                        f"> gpumanager_container_share_promised_percent{{{OWN}}}",
                        f"ceiling: {NAME}", dashed=True),
              )),
        Lines("Launches", "Of kernels and graphs, a second.", 8, 7, unit="ops",
              queries=(Query(f"rate(gpumanager_container_launches_total{{{OWN}}}[5m])", NAME),)),
        Lines("Launches that waited", "Of all, those that had to wait for the share.", 8, 7,
              unit="percentunit", most=1,
              queries=(Query(f"container:gpumanager_launches_throttled:ratio_rate5m{{{OWN}}}",
                             NAME),)),
        Lines("Time spent waiting", "Seconds a second, of all threads together.", 8, 7, unit="s",
              queries=(Query(f"rate(gpumanager_container_throttled_seconds_total{{{OWN}}}[5m])",
                             NAME),)),
    ),
)  # fmt: skip

MEMORY: Final = Row(
    "Memory",
    (
        Lines("Memory", "By the books, and of whole GPUs by the driver; the limit dashed.", 16, 9,
              unit="bytes", legend="table",
              queries=(
                  Query(f"gpumanager_container_memory_used_bytes{{{OWN}}} "
                        f"or gpumanager_container_memory_measured_bytes{{{OWN}}}", NAME),
                  Query(f"gpumanager_container_memory_limit_bytes{{{OWN}}}", f"limit: {NAME}",
                        "red", dashed=True),
              )),
        Lines("Refusals", "Requests refused at the limit, a second. Programs with a cache give "
              "some back and ask again.", 8, 9, unit="ops",
              queries=(Query(f"rate(gpumanager_container_memory_refusals_total{{{OWN}}}[5m])",
                             NAME),)),
    ),
)  # fmt: skip

AROUND: Final = Row(
    "Around it",
    (
        Lines("Its GPUs, with all containers on them", "How busy the driver sees them: "
              "whether there would be more to have.", 12, 7, unit="percent", most=100,
              queries=(Query("max by (node, gpu, uuid) (gpumanager_gpu_utilization_percent "
                             "and on (node, uuid) "
                             f"gpumanager_container_share_promised_percent{{{OWN}}})",
                             "{{node}} {{gpu}}"),)),
        Lines("Processes", "On the GPU, by the driver.", 6, 7,
              queries=(Query(f"gpumanager_container_processes{{{OWN}}}", NAME),)),
        Stat("Limits held less exactly", "Processes with a shim that lacks something.", 3, 7,
             steps=ZERO_IS_GOOD,
             query=Query(f"sum(gpumanager_container_degraded_processes{{{OWN}}})")),
        Stat("Without limits", "Processes for which no limit holds.", 3, 7, steps=ZERO_IS_GOOD,
             query=Query(f"sum(gpumanager_container_unlimited_processes{{{OWN}}})")),
    ),
)  # fmt: skip

SERIES: Final = "gpumanager_container_share_promised_percent"

BOARD: Final = Board(
    uid="gpu-manager-workload",
    title="GPU manager / Workload",
    help="What a pod was granted of its GPUs, what it got, where it waited, what it was refused.",
    variables=(
        Variable("namespace", "Namespace", f"label_values({SERIES}, namespace)"),
        Variable("pod", "Pod", f'label_values({SERIES}{{namespace=~"$namespace"}}, pod)',
                 several=True),
        Variable("container", "Container",
                 f'label_values({SERIES}{{namespace=~"$namespace",pod=~"$pod"}}, container)',
                 several=True),
    ),
    rows=(GLANCE, COMPUTE, MEMORY, AROUND),
    hours=3,
)  # fmt: skip
