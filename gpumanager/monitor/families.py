"""Every metric there is: its name, what it means, its labels, and where its values come from. Pure.

One row a metric; docs/metrics.md is held to these rows by a test. The first four are gpu-manager's,
with its names, labels and units.
"""

from itertools import chain
from typing import Final

from gpumanager.monitor.latency import SECONDS_HELP, SECONDS_LABELS, SECONDS_NAME
from gpumanager.monitor.rows import (
    CONTAINER,
    DEVICE,
    GPU,
    ORIGINAL,
    Family,
    busy_percent,
    degraded,
    each_and_total,
    gpu_info,
    memory_mib,
    of_devices,
    of_gpus,
    of_shares,
    original,
    requested_mib,
    seconds,
    single,
    told,
    unlimited,
    watts,
    xids,
)

KEPT: Final = (
    Family(
        "container_gpu_utilization", "gauge",
        "Percent of the GPU's time the container kept it busy; total: of its GPUs together",
        (*ORIGINAL, "gpu"), original(each_and_total(busy_percent)),
    ),
    Family(
        "container_gpu_memory_total", "gauge", "GPU memory the container uses, in MiB",
        (*ORIGINAL, "gpu_memory"), original(each_and_total(memory_mib)),
    ),
    Family(
        "container_request_gpu_utilization", "gauge", "GPUs the container asked for: 0.3 is 30 %",
        (*ORIGINAL, "req_of_gpu"),
        original(lambda view: [("total", view.promise.cores / 100)]),
    ),
    Family(
        "container_request_gpu_memory", "gauge", "GPU memory the container asked for, in MiB",
        (*ORIGINAL, "req_of_gpu_memory"), original(lambda view: [("total", requested_mib(view))]),
    ),
)  # fmt: skip
"""gpu-manager's own."""

OF_GPUS: Final = (
    Family("gpumanager_gpu_info", "gauge", "Always 1; what the labels say",
           (*GPU, "model", "bus_id", "minor"), gpu_info),
    Family("gpumanager_gpu_healthy", "gauge", "1 while containers may get it",
           GPU, of_gpus(lambda one: one.fitness.healthy)),
    Family("gpumanager_gpu_xid_errors", "counter", "Xids its driver reported, since the start",
           (*GPU, "xid"), xids),
    Family("gpumanager_gpu_memory_bytes", "gauge", "Memory it has for containers",
           GPU, of_gpus(lambda one: one.gpu.memory)),
    Family("gpumanager_gpu_memory_used_bytes", "gauge", "Memory in use, by the driver",
           GPU, of_gpus(told(lambda one: one.memory_used))),
    Family("gpumanager_gpu_memory_granted_bytes", "gauge", "Memory promised to containers",
           GPU, of_gpus(lambda one: one.memory)),
    Family("gpumanager_gpu_cores_granted_percent", "gauge", "Its time promised to containers",
           GPU, of_gpus(lambda one: one.cores)),
    Family("gpumanager_gpu_containers", "gauge", "Containers that hold some of it",
           GPU, of_gpus(lambda one: one.containers)),
    Family("gpumanager_gpu_utilization_percent", "gauge", "How busy it is, by the driver",
           GPU, of_gpus(told(lambda one: one.percent))),
    Family("gpumanager_gpu_temperature_celsius", "gauge", "How warm it is, where it tells",
           GPU, of_gpus(told(lambda one: one.temperature_celsius))),
    Family("gpumanager_gpu_power_watts", "gauge", "What it draws, where it tells",
           GPU, of_gpus(watts)),
)  # fmt: skip

OF_CONTAINERS: Final = (
    Family("gpumanager_container_memory_limit_bytes", "gauge", "Memory it may use of the GPU",
           DEVICE, of_devices(lambda one: one.limit)),
    Family("gpumanager_container_memory_used_bytes", "gauge", "Memory it uses, by its books",
           DEVICE, of_shares(lambda one: one.used)),
    Family("gpumanager_container_memory_peak_bytes", "gauge", "The most it ever used",
           DEVICE, of_shares(lambda one: one.peak)),
    Family("gpumanager_container_memory_measured_bytes", "gauge",
           "Memory of its processes, by the driver, where it tells",
           DEVICE, of_devices(lambda one: one.measured)),
    Family("gpumanager_container_memory_refusals", "counter", "Requests refused at the limit",
           DEVICE, of_shares(lambda one: one.refused)),
    Family("gpumanager_container_share_promised_percent", "gauge", "Its part of the GPU's time",
           DEVICE, of_devices(lambda one: one.promised)),
    Family("gpumanager_container_share_ceiling_percent", "gauge",
           "What it may take while others leave it",
           DEVICE, of_devices(lambda one: one.ceiling)),
    Family("gpumanager_container_share_percent", "gauge", "What it took since the last look",
           DEVICE, of_shares(lambda one: one.share)),
    Family("gpumanager_container_utilization_percent", "gauge",
           "For how much of the time it kept the GPU busy, by the driver, where it tells",
           DEVICE, of_devices(lambda one: one.percent)),
    Family("gpumanager_container_gpu_seconds", "counter", "GPU time it took",
           DEVICE, of_shares(lambda one: seconds(one.charged_ns))),
    Family("gpumanager_container_throttled_seconds", "counter", "Time its launches had to wait",
           DEVICE, of_shares(lambda one: seconds(one.throttled_ns))),
    Family("gpumanager_container_launches", "counter", "Launches of kernels and graphs",
           DEVICE, of_shares(lambda one: one.launches)),
    Family("gpumanager_container_launches_throttled", "counter", "Launches that had to wait",
           DEVICE, of_shares(lambda one: one.throttled)),
    Family("gpumanager_container_processes", "gauge", "Its processes on the GPU, by the driver",
           DEVICE, of_devices(lambda one: len(one.pids))),
    Family("gpumanager_container_degraded_processes", "gauge",
           "Its processes whose limits are held less exactly, by what their shim lacks",
           (*CONTAINER, "reason"), degraded),
    Family("gpumanager_container_unlimited_processes", "gauge",
           "Its processes for which no limit holds, by what they lack",
           (*CONTAINER, "reason"), unlimited),
)  # fmt: skip

OF_THE_AGENT: Final = (
    Family("gpumanager_build_info", "gauge", "Always 1; the version of this agent",
           ("version",), lambda page: [((page.version,), 1)]),
    Family("gpumanager_driver_answers", "gauge", "1 while NVML answers in time",
           (), single(lambda page: page.snapshot.answered)),
    Family("gpumanager_registered", "gauge", "1 while the kubelet knows the resource",
           ("resource",),
           lambda page: (((name,), on) for name, on in page.snapshot.registered.items())),
    Family("gpumanager_rpc_answers", "counter", "Answers to the kubelet",
           ("rpc", "resource", "outcome"), lambda page: page.latencies.outcomes.items()),
    Family("gpumanager_journal_allocations", "gauge", "Promises in the journal",
           ("state",), lambda page: (((name,), n) for name, n in page.snapshot.journal.items())),
    Family("gpumanager_journal_bytes", "gauge", "Size of the journal's file",
           (), single(lambda page: page.snapshot.journal_bytes)),
    Family("gpumanager_journal_writes", "counter", "Changes that were written down",
           (), single(lambda page: page.writes.writes)),
    Family("gpumanager_journal_write_errors", "counter", "Changes that could not be",
           (), single(lambda page: page.writes.errors)),
    Family("gpumanager_journal_write_seconds", "counter", "Time that writing took",
           (), single(lambda page: page.writes.seconds)),
    Family("gpumanager_identity_mismatches", "counter",
           "Processes found with a limit that is another pod's; it stays 0",
           (), single(lambda page: page.tally.mismatches)),
    Family("gpumanager_identity_swaps_healed", "counter",
           "Containers admitted in the place of others, and given their own limits",
           (), single(lambda page: page.latencies.healed)),
    Family("gpumanager_socket_strangers", "counter",
           "Callers turned away from a socket that is another pod's",
           (), single(lambda page: page.snapshot.mismatched)),
    Family("gpumanager_disagreements", "gauge", "Differences between those who keep books",
           ("kind",),
           lambda page: (((name,), n) for name, n in page.snapshot.disagreements.items())),
    Family("gpumanager_background_task_restarts", "counter",
           "How often a background task failed and was restarted",
           ("task",), lambda page: (((name,), n) for name, n in page.tasks.restarts.items())),
    Family("gpumanager_skipped_errors", "counter",
           "Errors about one object each, by the task that skipped it",
           ("task",), lambda page: (((name,), n) for name, n in page.tasks.skipped.counts.items())),
    Family("gpumanager_audit_processes", "gauge",
           "Processes that have GPU memory which no limit holds",
           ("kind",), lambda page: (((k.value,), n) for k, n in page.tally.now.items())),
    Family("gpumanager_audit_findings", "counter", "How often such a process was found",
           ("kind",), lambda page: (((k.value,), n) for k, n in page.tally.found.items())),
    Family("gpumanager_audit_ended", "counter", "Processes ended for it, by policy",
           (), single(lambda page: page.tally.ended)),
)  # fmt: skip

RPC_SECONDS: Final = Family(
    SECONDS_NAME, "histogram", SECONDS_HELP, SECONDS_LABELS, lambda _page: ()
)

FAMILIES: Final = tuple(chain(KEPT, OF_GPUS, OF_CONTAINERS, OF_THE_AGENT))
EVERY: Final = (*FAMILIES, RPC_SECONDS)
