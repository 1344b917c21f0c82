"""The cluster: GPUs granted and used, by node and by namespace, and how scheduling does."""

from typing import Final

from grafana_model import (
    FULL_IS_DEAR,
    IDLE_IS_DEAR,
    ZERO_IS_GOOD,
    Board,
    Column,
    Key,
    Lines,
    Query,
    Row,
    Stat,
    Table,
)

GLANCE: Final = Row(
    "Overview",
    (
        Stat("GPUs", "GPUs of all nodes with a running agent.", 4, 4,
             query=Query("cluster:gpumanager_gpus:count")),
        Stat("GPU time granted", "Part of all GPU time that is granted to containers.", 4, 4,
             unit="percentunit", decimals=0, steps=FULL_IS_DEAR,
             query=Query("cluster:gpumanager_cores_granted:ratio")),
        Stat("Memory granted", "Part of all GPU memory that is granted to containers.", 4, 4,
             unit="percentunit", decimals=0, steps=FULL_IS_DEAR,
             query=Query("cluster:gpumanager_memory_granted:ratio")),
        Stat("GPU utilization", "Average of all GPUs, as the driver reports it.", 4, 4,
             unit="percentunit", decimals=0,
             query=Query("cluster:gpumanager_utilization:ratio", color="blue")),
        Stat("Granted but unused",
             "Part of the granted GPU time that containers do not use. Smaller grants with a burst "
             "limit reduce it.", 4, 4,
             unit="percentunit", decimals=0, steps=IDLE_IS_DEAR,
             query=Query("cluster:gpumanager_share_unused:ratio")),
        Stat("Unhealthy GPUs", "GPUs that get no new container.", 4, 4,
             steps=ZERO_IS_GOOD, query=Query("sum(node:gpumanager_gpus_unhealthy:count)")),
    ),
)  # fmt: skip

COURSE: Final = Row(
    "Granted and used",
    (
        Lines("All GPUs", "Granted to containers, and in use as the driver reports it. Bursting or "
              "smaller grants close the gap.", 12, 8,
              unit="percentunit", most=1,
              queries=(
                  Query("cluster:gpumanager_cores_granted:ratio", "GPU time granted", "blue"),
                  Query("cluster:gpumanager_utilization:ratio", "GPU utilization", "green"),
                  Query("cluster:gpumanager_memory_granted:ratio", "memory granted", "purple"),
                  Query("cluster:gpumanager_memory_used:ratio", "memory used", "orange"),
              )),
        Lines("GPUs in use by namespace",
              "GPU time that the containers of each namespace use, in GPUs.",
              12, 8, unit="short", stacked=True,
              queries=(Query("namespace:gpumanager_share_used:gpus", "{{namespace}}"),)),
    ),
)  # fmt: skip

NODES: Final = Row(
    "Nodes",
    (
        Table("Nodes", "One row per node; its name links to the node's dashboard.", 24, 8,
              keys=(Key("node", "Node", "gpu-manager-node"),), by="GPU time granted",
              columns=(
                  Column("GPUs", "node:gpumanager_gpus:count"),
                  Column("Containers", "sum by (node) (gpumanager_gpu_containers)"),
                  Column("GPU time granted", "node:gpumanager_cores_granted:ratio",
                         "percentunit", bar=True, steps=FULL_IS_DEAR),
                  Column("Utilization", "node:gpumanager_utilization:ratio", "percentunit",
                         bar=True, steps=(("blue", None),)),
                  Column("Memory granted", "node:gpumanager_memory_granted:ratio",
                         "percentunit", bar=True, steps=FULL_IS_DEAR),
                  Column("Memory used", "node:gpumanager_memory_used:ratio", "percentunit",
                         bar=True, steps=(("purple", None),)),
                  Column("Unused, GPUs", "node:gpumanager_share_unused:gpus", decimals=2),
                  Column("Unhealthy", "node:gpumanager_gpus_unhealthy:count", steps=ZERO_IS_GOOD),
              )),
    ),
)  # fmt: skip

TENANTS: Final = Row(
    "Tenants",
    (
        Table("Namespaces", "GPU time granted and used, in GPUs, and memory limits.", 12, 8,
              keys=(Key("namespace", "Namespace", "gpu-manager-workload"),), by="Granted",
              columns=(
                  Column("Granted", "namespace:gpumanager_share_granted:gpus", decimals=2),
                  Column("Used", "namespace:gpumanager_share_used:gpus", decimals=2),
                  Column("Memory", "namespace:gpumanager_memory_limit:bytes", "bytes"),
                  Column("Containers",
                         "count by (namespace) "
                         "(count by (namespace, pod, container) "
                         "(gpumanager_container_share_granted_ratio))"),
              )),
        Table("Largest unused grants", "Containers that leave most of their grant unused, in "
              "parts of a GPU. A smaller grant with a burst limit suits pods with bursty load.",
              12, 8, keys=(Key("namespace", "Namespace"), Key("pod", "Pod", "gpu-manager-workload"),
                    Key("container", "Container")), by="Unused",
              columns=(
                  Column("Unused", "topk(10, sum by (namespace, pod, container) "
                         "(container:gpumanager_share_unused:ratio))",
                         "percentunit", bar=True, steps=(("orange", None),)),
              )),
        Table("Quotas", "GPUs of each model: the quota of a namespace, and its use.", 10, 7,
              keys=(Key("namespace", "Namespace"), Key("model", "Model")), by="Used up",
              columns=(
                  Column("Used", "max by (namespace, model) "
                         '(gpumanager_extender_quota_gpus{kind="used"})', decimals=1),
                  Column("Limit", "max by (namespace, model) "
                         '(gpumanager_extender_quota_gpus{kind="limit"})'),
                  Column("Used up", "namespace_model:gpumanager_quota_used:ratio", "percentunit",
                         bar=True, steps=FULL_IS_DEAR),
              )),
        Table("Firing alerts", "Each has a runbook.", 14, 7,
              keys=(Key("severity", "Severity"), Key("alertname", "Alert", width=250),
                    Key("node", "Node", "gpu-manager-node"), Key("namespace", "Namespace"),
                    Key("pod", "Pod")),
              columns=(
                  Column("Count", "count by (severity, alertname, node, namespace, pod) "
                         '(ALERTS{alertname=~"GpuManager.*",alertstate="firing"})'),
              )),
    ),
)  # fmt: skip

SCHEDULING: Final = Row(
    "Scheduling",
    (
        Stat("Extender leader", "Exactly one replica is the leader and binds pods.", 4, 4,
             query=Query("sum(gpumanager_extender_is_leader)"),
             texts=((0, "none", "red"), (1, "elected", "green"), (2, "two", "red"))),
        Stat("Nodes in cache", "Nodes with GPUs in the extender's cache.", 4, 4,
             query=Query('max(gpumanager_extender_objects{kind="nodes"})')),
        Stat("Pods in cache", "Bound pods with GPUs in the extender's cache.", 4, 4,
             query=Query('max(gpumanager_extender_objects{kind="pods"})')),
        Stat("Quota ConfigMap", "Whether it could be read and parsed.", 4, 4,
             query=Query("min(gpumanager_extender_quota_understood)"),
             texts=((0, "invalid", "red"), (1, "valid", "green"))),
        Stat("Webhook certificate", "Time until it expires; it is renewed 30 days before.", 4, 4,
             unit="s", decimals=0, steps=(("red", None), ("orange", 172800), ("green", 1209600)),
             query=Query("min(gpumanager_webhook_certificate_expiry_timestamp_seconds) - time()")),
        Stat("Extender requests", "Per second, all replicas together.", 4, 4, unit="reqps",
             query=Query("sum(rate(gpumanager_extender_requests_total[5m]))")),
        Lines("Request duration, p99", "Of extender and webhook. kube-scheduler waits for each; "
              "bind waits for the API server.", 8, 7, unit="s",
              queries=(
                  Query("verb:gpumanager_extender_request_duration_seconds:p99_rate5m", "{{verb}}"),
                  Query("endpoint:gpumanager_webhook_request_duration_seconds:p99_rate5m",
                        "{{endpoint}}"),
              )),
        Lines("Extender requests by outcome",
              "refused: malformed. failed: an error of the extender or of the API server.", 8, 7,
              unit="reqps",
              queries=(Query("sum by (outcome) (rate(gpumanager_extender_requests_total[5m]))",
                             "{{outcome}}"),)),
        Lines("Webhook reviews by outcome",
              "changed: defaults were filled in. failed: the pod could not be reviewed.",
              8, 7, unit="reqps",
              queries=(Query("sum by (outcome) (rate(gpumanager_webhook_reviews_total[5m]))",
                             "{{outcome}}"),)),
    ),
)  # fmt: skip

BOARD: Final = Board(
    uid="gpu-manager-cluster",
    title="GPU manager / Cluster",
    help="GPUs of the cluster: granted, used, and by which namespaces.",
    variables=(),
    rows=(GLANCE, COURSE, NODES, TENANTS, SCHEDULING),
)
