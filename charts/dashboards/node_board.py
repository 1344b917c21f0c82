"""A node: its GPUs, the containers on them, and its agent."""

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
    "Overview",
    (
        Stat("Agent up", "Whether Prometheus can scrape the agent.", 4, 4, texts=YES_NO,
             query=Query(f'min(up{{job="gpu-manager-agent",{HERE}}})')),
        Stat("Registered with kubelet", "Whether both resources are registered.", 4, 4,
             texts=YES_NO, query=Query(f"min(gpumanager_kubelet_registered{{{HERE}}})")),
        Stat("Driver up", "Whether NVML responds in time.", 4, 4, texts=YES_NO,
             query=Query(f"min(gpumanager_driver_up{{{HERE}}})")),
        Stat("Unhealthy GPUs", "GPUs that get no new container.", 4, 4,
             steps=ZERO_IS_GOOD, query=Query(f"sum(1 - gpumanager_gpu_healthy{{{GPUS}}})")),
        Stat("State mismatches", "Between journal, kubelet and container runtime.", 4, 4,
             steps=ZERO_IS_GOOD, query=Query(f"sum(gpumanager_state_mismatches{{{HERE}}})")),
        Stat("Untracked GPU memory", "Processes with GPU memory that no limit covers.", 4, 4,
             steps=ZERO_IS_GOOD, query=Query(f"sum(gpumanager_audit_processes{{{HERE}}})")),
    ),
)  # fmt: skip

OF_GPUS: Final = Row(
    "GPUs",
    (
        Bars("GPU time granted", "Part of each GPU's time that is granted to containers.", 8, 7,
             unit="percentunit", most=1, steps=(("blue", None),),
             query=Query(f"gpumanager_gpu_cores_granted_ratio{{{GPUS}}}", "{{gpu}}")),
        Bars("Memory granted", "Part of each GPU's memory that is granted to containers.", 8, 7,
             unit="percentunit", most=1, steps=(("purple", None),),
             query=Query(f"gpumanager_gpu_memory_granted_bytes{{{GPUS}}} "
                         f"/ gpumanager_gpu_memory_bytes{{{GPUS}}}", "{{gpu}}")),
        Bars("Containers", "Containers with a grant on each GPU.", 8, 7,
             steps=(("green", None),),
             query=Query(f"gpumanager_gpu_containers{{{GPUS}}}", "{{gpu}}")),
        Lines("GPU utilization", "As the driver reports it.", 12, 8,
              unit="percentunit", most=1,
              queries=(Query(f"gpumanager_gpu_utilization_ratio{{{GPUS}}}", "{{gpu}}"),)),
        Lines("GPU memory used", "As the driver reports it.", 12, 8, unit="bytes",
              queries=(Query(f"gpumanager_gpu_memory_used_bytes{{{GPUS}}}", "{{gpu}}"),)),
    ),
)  # fmt: skip

OF_CONTAINERS: Final = Row(
    "Containers",
    (
        Table("Containers", "One row for each GPU of each container. Throttled: part of its kernel "
              "launches. The pod's name links to its dashboard.", 24, 8,
              keys=(Key("namespace", "Namespace"), Key("pod", "Pod", "gpu-manager-workload"),
                    Key("container", "Container"), Key("gpu", "GPU")), by="Share used",
              columns=(
                  Column("Granted",
                         f"sum {EACH} (gpumanager_container_share_granted_ratio{{{GPUS}}})",
                         "percentunit"),
                  Column("Share used",
                         f"sum {EACH} (container:gpumanager_share_used:ratio{{{GPUS}}})",
                         "percentunit", bar=True, steps=(("blue", None),), decimals=1),
                  Column("Throttled",
                         f"sum {EACH} (container:gpumanager_launches_throttled:ratio_rate5m"
                         f"{{{GPUS}}})", "percentunit", decimals=0),
                  Column("Memory limit",
                         f"sum {EACH} (gpumanager_container_memory_limit_bytes{{{GPUS}}})",
                         "bytes"),
                  Column("Memory used",
                         f"sum {EACH} (container:gpumanager_memory_used:ratio{{{GPUS}}})",
                         "percentunit", bar=True, steps=FULL_IS_DEAR),
                  Column("Refused, 1 h",
                         f"sum {EACH} (increase("
                         f"gpumanager_container_memory_refusals_total{{{GPUS}}}[1h]))",
                         decimals=0, steps=(("text", None), ("orange", 1))),
              )),
        Lines("GPU time by container", "In GPUs: 1 is one whole GPU.", 12, 9, unit="short",
              stacked=True, legend="table",
              queries=(Query(f"sum by (namespace, pod, container) "
                             f"(container:gpumanager_share_used:ratio{{{GPUS}}})",
                             "{{namespace}}/{{pod}} {{container}}"),)),
        Lines("GPU memory by container", "As reserved; for whole GPUs as the driver reports it.",
              12, 9, unit="bytes", stacked=True, legend="table",
              queries=(Query(f"sum by (namespace, pod, container) "
                             f"(gpumanager_container_memory_used_bytes{{{GPUS}}} "
                             f"or gpumanager_container_memory_measured_bytes{{{GPUS}}})",
                             "{{namespace}}/{{pod}} {{container}}"),)),
    ),
)  # fmt: skip

HEALTH: Final = Row(
    "Health",
    (
        Lines("Temperature", "If the driver reports it.", 8, 7, unit="celsius",
              queries=(Query(f"gpumanager_gpu_temperature_celsius{{{GPUS}}}", "{{gpu}}"),)),
        Lines("Power draw", "If the driver reports it.", 8, 7, unit="watt",
              queries=(Query(f"gpumanager_gpu_power_watts{{{GPUS}}}", "{{gpu}}"),)),
        Lines("Xid errors", "Since the agent started.", 8, 7,
              queries=(Query(f"gpumanager_gpu_xid_errors_total{{{GPUS}}}",
                             "{{gpu}} Xid {{xid}}"),)),
    ),
    collapsed=True,
)  # fmt: skip

AGENT: Final = Row(
    "Agent",
    (
        Lines("Plugin call duration, p99", "The kubelet admits no other pod while it waits.", 8, 7,
              unit="s",
              queries=(Query("max by (rpc) (node_rpc:gpumanager_rpc_duration_seconds:p99_rate5m"
                             f"{{{HERE}}})", "{{rpc}}"),)),
        Lines("Plugin calls by outcome", "refused: the pod fails; with a claim it stays pending. "
              "retry: the kubelet retries. failed: an internal error of the agent.", 8, 7,
              unit="reqps",
              queries=(Query("sum by (outcome) "
                             f"(rate(gpumanager_rpc_answers_total{{{HERE}}}[5m]))",
                             "{{outcome}}"),)),
        Lines("Journal writes", "Mean duration; errors per second.", 8, 7, unit="s",
              queries=(
                  Query(f"sum(rate(gpumanager_journal_write_seconds_total{{{HERE}}}[5m])) "
                        f"/ (sum(rate(gpumanager_journal_writes_total{{{HERE}}}[5m])) > 0)",
                        "duration"),
                  Query(f"sum(rate(gpumanager_journal_write_errors_total{{{HERE}}}[5m]))",
                        "errors", "red"),
              )),
        Table("Mismatches and findings", "State mismatches, and processes without a limit, by "
              "kind.", 12, 7, keys=(Key("kind", "Kind"),),
              columns=(
                  Column("State mismatches",
                         f"sum by (kind) (gpumanager_state_mismatches{{{HERE}}})",
                         steps=ZERO_IS_GOOD),
                  Column("Processes without a limit",
                         f"sum by (kind) (gpumanager_audit_processes{{{HERE}}})",
                         steps=ZERO_IS_GOOD),
              )),
        Stat("Grants in the journal", "Without released ones.", 6, 7,
             query=Query(f'sum(gpumanager_journal_allocations{{state!="released",{HERE}}})')),
        Stat("Identity mismatches", "Processes found with the limits of another pod; must be 0.",
             6, 7, steps=ZERO_IS_GOOD,
             query=Query(f"sum(gpumanager_identity_mismatches_total{{{HERE}}})")),
    ),
    collapsed=True,
)  # fmt: skip

BOARD: Final = Board(
    uid="gpu-manager-node",
    title="GPU manager / Node",
    help="The GPUs of a node, the containers on them, and its agent.",
    variables=(
        Variable("node", "Node", "label_values(gpumanager_build_info, node)"),
        Variable("gpu", "GPU", f"label_values(gpumanager_gpu_info{{{HERE}}}, gpu)", several=True),
    ),
    rows=(GLANCE, OF_GPUS, OF_CONTAINERS, HEALTH, AGENT),
    hours=3,
)
