"""Where Python finds the stand-ins for PyTorch, Triton and CuPy, and what they are made of."""

from pathlib import Path

from gpu_check.bench import WORKLOADS

FRAMEWORKS = (Path(__file__).parent / "standins", WORKLOADS)
