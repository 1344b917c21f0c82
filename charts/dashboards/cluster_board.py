"""The cluster: grants, their use, their owners, and whether scheduling works."""

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
    "At a glance",
    (
        Stat("GPUs", "GPUs of all nodes with an agent that answers.", 4, 4,
             query=Query("cluster:gpumanager_gpus:count")),
        Stat("Compute granted", "Of the GPUs' time, what is granted to containers.", 4, 4,
             unit="percentunit", decimals=0, steps=FULL_IS_DEAR,
             query=Query("cluster:gpumanager_cores_granted:ratio")),
        Stat("Memory granted", "Of the GPUs' memory, what is granted to containers.", 4, 4,
             unit="percentunit", decimals=0, steps=FULL_IS_DEAR,
             query=Query("cluster:gpumanager_memory_granted:ratio")),
        Stat("Busy", "For how much of the time GPUs compute, by the driver.", 4, 4,
             unit="percentunit", decimals=0,
             query=Query("cluster:gpumanager_utilization:ratio", color="blue")),
        Stat("Granted and unused",
             "Of the time that is granted to containers, what they leave unused. Smaller grants "
             "with a burst limit bring it down.", 4, 4,
             unit="percentunit", decimals=0, steps=IDLE_IS_DEAR,
             query=Query("cluster:gpumanager_share_unused:ratio")),
        Stat("Out of use", "GPUs that nobody new gets, because they are harmed.", 4, 4,
             steps=ZERO_IS_GOOD, query=Query("sum(node:gpumanager_gpus_unhealthy:count)")),
    ),
)  # fmt: skip

COURSE: Final = Row(
    "Granted and used",
    (
        Lines("All GPUs", "Granted: to containers. Busy and used: by the driver. The gap "
              "is what bursting, or smaller grants, can win.", 12, 8,
              unit="percentunit", most=1,
              queries=(
                  Query("cluster:gpumanager_cores_granted:ratio", "compute granted", "blue"),
                  Query("cluster:gpumanager_utilization:ratio", "busy", "green"),
                  Query("cluster:gpumanager_memory_granted:ratio", "memory granted", "purple"),
                  Query("cluster:gpumanager_memory_used:ratio", "memory used", "orange"),
              )),
        Lines("GPUs in use by namespace",
              "How many GPUs' time the containers of each namespace took, shares by their part.",
              12, 8, unit="short", stacked=True,
              queries=(Query("namespace:gpumanager_share_used:gpus", "{{namespace}}"),)),
    ),
)  # fmt: skip

NODES: Final = Row(
    "Nodes",
    (
        Table("Nodes", "One row a node; its name leads to it.", 24, 8,
              keys=(Key("node", "Node", "gpu-manager-node"),), by="Compute granted",
              columns=(
                  Column("GPUs", "node:gpumanager_gpus:count"),
                  Column("Containers", "sum by (node) (gpumanager_gpu_containers)"),
                  Column("Compute granted", "node:gpumanager_cores_granted:ratio",
                         "percentunit", bar=True, steps=FULL_IS_DEAR),
                  Column("Busy", "node:gpumanager_utilization:ratio", "percentunit", bar=True,
                         steps=(("blue", None),)),
                  Column("Memory granted", "node:gpumanager_memory_granted:ratio",
                         "percentunit", bar=True, steps=FULL_IS_DEAR),
                  Column("Memory used", "node:gpumanager_memory_used:ratio", "percentunit",
                         bar=True, steps=(("purple", None),)),
                  Column("Granted, unused", "node:gpumanager_share_unused:gpus", decimals=2),
                  Column("Out of use", "node:gpumanager_gpus_unhealthy:count", steps=ZERO_IS_GOOD),
              )),
    ),
)  # fmt: skip

TENANTS: Final = Row(
    "Tenants",
    (
        Table("Namespaces", "What each holds and takes, in GPUs; shares by their part.", 12, 8,
              keys=(Key("namespace", "Namespace", "gpu-manager-workload"),), by="Granted",
              columns=(
                  Column("Granted", "namespace:gpumanager_share_promised:gpus", decimals=2),
                  Column("Used", "namespace:gpumanager_share_used:gpus", decimals=2),
                  Column("Memory", "namespace:gpumanager_memory_limit:bytes", "bytes"),
                  Column("Containers",
                         "count by (namespace) "
                         "(count by (namespace, pod, container) "
                         "(gpumanager_container_share_promised_percent))"),
              )),
        Table("Unused grants", "Containers that leave most of what they hold, in percent of a "
              "GPU. A burst limit serves pods that need it now and then.", 12, 8,
              keys=(Key("namespace", "Namespace"), Key("pod", "Pod", "gpu-manager-workload"),
                    Key("container", "Container")), by="Unused",
              columns=(
                  Column("Unused", "topk(10, sum by (namespace, pod, container) "
                         "(container:gpumanager_share_unused:percent))",
                         "percent", bar=True, most=100, steps=(("orange", None),)),
              )),
        Table("Quotas", "GPUs by model that a namespace may use, and those it uses.", 12, 7,
              keys=(Key("namespace", "Namespace"), Key("model", "Model")), by="Used up",
              columns=(
                  Column("Used", "max by (namespace, model) "
                         '(gpumanager_extender_quota_gpus{kind="used"})', decimals=1),
                  Column("Limit", "max by (namespace, model) "
                         '(gpumanager_extender_quota_gpus{kind="limit"})'),
                  Column("Used up", "namespace_model:gpumanager_quota_used:ratio", "percentunit",
                         bar=True, steps=FULL_IS_DEAR),
              )),
        Table("Alerts", "What fires now. Each has a page that says what to do.", 12, 7,
              keys=(Key("severity", "Severity"), Key("alertname", "Alert"),
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
        Stat("Leader", "Exactly one replica of the extender binds.", 4, 4,
             query=Query("sum(gpumanager_extender_leads)"),
             texts=((0, "none", "red"), (1, "one", "green"), (2, "two", "red"))),
        Stat("Nodes known", "Nodes that the extender has read.", 4, 4,
             query=Query('max(gpumanager_extender_objects{kind="nodes"})')),
        Stat("Pods held", "Pods with GPUs that are bound, by the extender's books.", 4, 4,
             query=Query('max(gpumanager_extender_objects{kind="pods"})')),
        Stat("Quotas", "Whether the ConfigMap of the quotas is understood.", 4, 4,
             query=Query("min(gpumanager_extender_quota_understood)"),
             texts=((0, "not understood", "red"), (1, "understood", "green"))),
        Stat("Webhook's certificate", "How long it is good; renewed 30 days before.", 4, 4,
             unit="s", decimals=0, steps=(("red", None), ("orange", 172800), ("green", 1209600)),
             query=Query("min(gpumanager_webhook_certificate_end_seconds) - time()")),
        Stat("Answers of the extender", "A second, of all replicas.", 4, 4, unit="reqps",
             query=Query("sum(rate(gpumanager_extender_requests_total[5m]))")),
        Lines("Extender and webhook, p99", "One request in a hundred takes longer. kube-scheduler "
              "waits for each; bind waits for the API server.", 8, 7, unit="s",
              queries=(
                  Query("verb:gpumanager_extender_seconds:p99_rate5m", "{{verb}}"),
                  Query("endpoint:gpumanager_webhook_seconds:p99_rate5m", "{{endpoint}}"),
              )),
        Lines("Extender, what became of requests",
              "refused: was no request. failed: an error of ours or of the API server.", 8, 7,
              unit="reqps",
              queries=(Query("sum by (outcome) (rate(gpumanager_extender_requests_total[5m]))",
                             "{{outcome}}"),)),
        Lines("Webhook, what became of pods",
              "changed: completed. failed: could not be looked at.", 8, 7, unit="reqps",
              queries=(Query("sum by (outcome) (rate(gpumanager_webhook_reviews_total[5m]))",
                             "{{outcome}}"),)),
    ),
)  # fmt: skip

BOARD: Final = Board(
    uid="gpu-manager-cluster",
    title="GPU manager / Cluster",
    help="What is granted of the cluster's GPUs, what of it is used, and by whom.",
    variables=(),
    rows=(GLANCE, COURSE, NODES, TENANTS, SCHEDULING),
)
