"""A node: its GPUs, the containers on them, and how its agent does."""

from typing import Final

from grafana_model import (
    FULL_IS_DEAR,
    ZERO_IS_GOOD,
    Bars,
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

HERE: Final = 'node=~"$node"'
GPUS: Final = 'node=~"$node",gpu=~"$gpu"'
EACH: Final = "by (namespace, pod, container, gpu)"
YES_NO: Final = ((0, "no", "red"), (1, "yes", "green"))

GLANCE: Final = Row(
    "At a glance",
    (
        Stat("Agent answers", "Whether Prometheus can read the agent.", 4, 4, texts=YES_NO,
             query=Query(f'min(up{{job="gpu-manager-agent",{HERE}}})')),
        Stat("Registered", "Whether the kubelet knows both resources.", 4, 4, texts=YES_NO,
             query=Query(f"min(gpumanager_registered{{{HERE}}})")),
        Stat("Driver answers", "Whether NVML answers in time.", 4, 4, texts=YES_NO,
             query=Query(f"min(gpumanager_driver_answers{{{HERE}}})")),
        Stat("GPUs out of use", "GPUs that nobody new gets, because they are harmed.", 4, 4,
             steps=ZERO_IS_GOOD, query=Query(f"sum(1 - gpumanager_gpu_healthy{{{GPUS}}})")),
        Stat("Books that differ", "Differences between journal, kubelet and containers.", 4, 4,
             steps=ZERO_IS_GOOD, query=Query(f"sum(gpumanager_disagreements{{{HERE}}})")),
        Stat("Memory no limit holds", "Processes with GPU memory that went round the shim, or are "
             "nobody's here.", 4, 4,
             steps=ZERO_IS_GOOD, query=Query(f"sum(gpumanager_audit_processes{{{HERE}}})")),
    ),
)  # fmt: skip

OF_GPUS: Final = Row(
    "GPUs",
    (
        Bars("Compute granted", "Of each GPU's time, what is granted to containers.", 8, 7,
             unit="percent", most=100, steps=(("blue", None),),
             query=Query(f"gpumanager_gpu_cores_granted_percent{{{GPUS}}}", "{{gpu}}")),
        Bars("Memory granted", "Of each GPU's memory, what is granted to containers.", 8, 7,
             unit="percentunit", most=1, steps=(("purple", None),),
             query=Query(f"gpumanager_gpu_memory_granted_bytes{{{GPUS}}} "
                         f"/ gpumanager_gpu_memory_bytes{{{GPUS}}}", "{{gpu}}")),
        Bars("Containers", "How many containers hold some of each GPU.", 8, 7,
             steps=(("green", None),),
             query=Query(f"gpumanager_gpu_containers{{{GPUS}}}", "{{gpu}}")),
        Lines("Busy", "For how much of the time each GPU computes, by the driver.", 12, 8,
              unit="percent", most=100,
              queries=(Query(f"gpumanager_gpu_utilization_percent{{{GPUS}}}", "{{gpu}}"),)),
        Lines("Memory used", "By the driver, of each GPU.", 12, 8, unit="bytes",
              queries=(Query(f"gpumanager_gpu_memory_used_bytes{{{GPUS}}}", "{{gpu}}"),)),
    ),
)  # fmt: skip

OF_CONTAINERS: Final = Row(
    "Containers",
    (
        Table("Containers", "One row for each GPU of each container. Throttled: of its launches "
              "those that had to wait for its share. The pod's name leads to it.", 24, 8,
              keys=(Key("namespace", "Namespace"), Key("pod", "Pod", "gpu-manager-workload"),
                    Key("container", "Container"), Key("gpu", "GPU")), by="Share used",
              columns=(
                  Column("Granted",
                         f"sum {EACH} (gpumanager_container_share_promised_percent{{{GPUS}}})",
                         "percent"),
                  Column("Share used",
                         f"sum {EACH} (container:gpumanager_share_used:percent{{{GPUS}}})",
                         "percent", bar=True, most=100, steps=(("blue", None),), decimals=1),
                  Column("Throttled",
                         f"sum {EACH} (container:gpumanager_launches_throttled:ratio_rate5m"
                         f"{{{GPUS}}})", "percentunit", decimals=0),
                  Column("Memory limit",
                         f"sum {EACH} (gpumanager_container_memory_limit_bytes{{{GPUS}}})",
                         "bytes"),
                  Column("Memory used",
                         f"sum {EACH} (container:gpumanager_memory_used:ratio{{{GPUS}}})",
                         "percentunit", bar=True, steps=FULL_IS_DEAR),
                  Column("Refused in 1 h",
                         f"sum {EACH} (increase("
                         f"gpumanager_container_memory_refusals_total{{{GPUS}}}[1h]))",
                         decimals=0, steps=(("text", None), ("orange", 1))),
              )),
        Lines("Share by container", "What each took of its GPUs' time.", 12, 9, unit="percent",
              stacked=True, legend="table",
              queries=(Query(f"sum by (namespace, pod, container) "
                             f"(container:gpumanager_share_used:percent{{{GPUS}}})",
                             "{{namespace}}/{{pod}} {{container}}"),)),
        Lines("Memory by container", "By their books; of whole GPUs by the driver.", 12, 9,
              unit="bytes", stacked=True, legend="table",
              queries=(Query(f"sum by (namespace, pod, container) "
                             f"(gpumanager_container_memory_used_bytes{{{GPUS}}} "
                             f"or gpumanager_container_memory_measured_bytes{{{GPUS}}})",
                             "{{namespace}}/{{pod}} {{container}}"),)),
    ),
)  # fmt: skip

HEALTH: Final = Row(
    "Health",
    (
        Lines("Temperature", "Where the GPU tells.", 8, 7, unit="celsius",
              queries=(Query(f"gpumanager_gpu_temperature_celsius{{{GPUS}}}", "{{gpu}}"),)),
        Lines("Power", "Where the GPU tells.", 8, 7, unit="watt",
              queries=(Query(f"gpumanager_gpu_power_watts{{{GPUS}}}", "{{gpu}}"),)),
        Lines("Xids", "What the driver reported, since the agent's start.", 8, 7,
              queries=(Query(f"gpumanager_gpu_xid_errors_total{{{GPUS}}}",
                             "{{gpu}} Xid {{xid}}"),)),
    ),
    collapsed=True,
)  # fmt: skip

AGENT: Final = Row(
    "The agent",
    (
        Lines("Answers to the kubelet, p99", "One in a hundred takes longer. The kubelet stands "
              "still meanwhile.", 8, 7, unit="s",
              queries=(Query("max by (rpc) (node_rpc:gpumanager_rpc_duration_seconds:p99_rate5m"
                             f"{{{HERE}}})", "{{rpc}}"),)),
        Lines("What became of them", "refused: the pod fails, and with a claim it waits. "
              "retry: the kubelet asks again. failed: an error of the agent's own.", 8, 7,
              unit="reqps",
              queries=(Query("sum by (outcome) "
                             f"(rate(gpumanager_rpc_answers_total{{{HERE}}}[5m]))",
                             "{{outcome}}"),)),
        Lines("One write of the journal", "How long a change takes to be on the disk; errors, a "
              "second.", 8, 7, unit="s",
              queries=(
                  Query(f"sum(rate(gpumanager_journal_write_seconds_total{{{HERE}}}[5m])) "
                        f"/ (sum(rate(gpumanager_journal_writes_total{{{HERE}}}[5m])) > 0)",
                        "a write"),
                  Query(f"sum(rate(gpumanager_journal_write_errors_total{{{HERE}}}[5m]))",
                        "errors", "red"),
              )),
        Table("Differences and findings", "Disagreements, and processes without a limit, by "
              "kind.", 12, 7, keys=(Key("kind", "Kind"),),
              columns=(
                  Column("Books that differ", f"sum by (kind) (gpumanager_disagreements{{{HERE}}})",
                         steps=ZERO_IS_GOOD),
                  Column("Processes no limit holds",
                         f"sum by (kind) (gpumanager_audit_processes{{{HERE}}})",
                         steps=ZERO_IS_GOOD),
              )),
        Stat("Grants in the journal", "Grants that hold something.", 6, 7,
             query=Query(f'sum(gpumanager_journal_allocations{{state!="released",{HERE}}})')),
        Stat("Limits of another pod", "Processes found with such; it stays 0.", 6, 7,
             steps=ZERO_IS_GOOD,
             query=Query(f"sum(gpumanager_identity_mismatches_total{{{HERE}}})")),
    ),
    collapsed=True,
)  # fmt: skip

BOARD: Final = Board(
    uid="gpu-manager-node",
    title="GPU manager / Node",
    help="The GPUs of a node, the containers on them, and how its agent does.",
    variables=(
        Variable("node", "Node", "label_values(gpumanager_build_info, node)"),
        Variable("gpu", "GPU", f"label_values(gpumanager_gpu_info{{{HERE}}}, gpu)", several=True),
    ),
    rows=(GLANCE, OF_GPUS, OF_CONTAINERS, HEALTH, AGENT),
    hours=3,
)
