"""Nodes that are objects alone, with the GPUs of simulated machines: pods bound there just stay.

What an agent would publish stands on them. Nobody runs or ends a pod there but who deletes it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpumanager.gpu.inventory import inventory
from gpumanager.gpu.values import GpuUUID, Topology, topology
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.machines import load_machine
from gpumanager.units import CORES_PER_GPU, blocks


def node_object(name: str, machine: str) -> Mapping[str, Any]:
    """A node that is ready and has these GPUs."""
    gpus = own_gpus(name, load_machine(machine).topology)
    resources = {
        "cpu": "64",
        "memory": "256Gi",
        "pods": "110",
        VCORE: str(CORES_PER_GPU * len(gpus.gpus)),
        VMEMORY: str(sum(blocks(gpu.memory) for gpu in gpus.gpus)),
    }
    return {
        "metadata": {"name": name, "annotations": inventory(gpus)},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def own_gpus(name: str, of: Topology) -> Topology:
    """The same machine with UUIDs that no other has."""
    gpus = [replace(gpu, uuid=GpuUUID(f"GPU-{name}-{gpu.index}")) for gpu in of.gpus]
    return topology(gpus, of.bonds)
