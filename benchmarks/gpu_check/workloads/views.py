"""What each way to ask says of this GPU's memory, while some of it is held."""

import ctypes
import re
import shutil
import subprocess
import sys

from driver import Driver
from say import say, shim_loaded

HELD = 256 << 20
SMI_SECONDS = 8


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


def nvml(uuid):
    library = ctypes.CDLL("libnvidia-ml.so.1")
    device, memory = ctypes.c_void_p(), Memory()
    steps = (
        ("nvmlInit_v2", ()),
        ("nvmlDeviceGetHandleByUUID", (uuid.encode(), ctypes.byref(device))),
        ("nvmlDeviceGetMemoryInfo", (device, ctypes.byref(memory))),
    )
    for name, words in steps:
        result = getattr(library, name)(*words)
        if result != 0:
            raise SystemExit(f"{name} answers {result}")
    return {"total": memory.total, "free": memory.free, "used": memory.used}


def nvidia_smi(uuid):
    """None where there is no such program; in bytes, of whole MiB. `failed`: what it says else."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = ["--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]
    try:
        finished = subprocess.run(
            [program, "-i", uuid, *asked],
            check=False,
            capture_output=True,
            text=True,
            timeout=SMI_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"it does not end within {SMI_SECONDS} s"}
    if finished.returncode != 0:
        return {"failed": f"exit status {finished.returncode}: {finished.stdout.strip()}"}
    figures = re.fullmatch(r"(\d+), (\d+)", finished.stdout.strip())
    if figures is None:
        return {"failed": f"it answers {finished.stdout.strip()!r}"}
    total, used = (int(figure) << 20 for figure in figures.groups())
    return {"total": total, "used": used}


def torch_sees():
    import torch

    left, total = torch.cuda.mem_get_info(0)
    properties = torch.cuda.get_device_properties(0)
    return {"total": total, "free": left, "device": properties.total_memory}


if __name__ == "__main__":
    driver = Driver()
    torch = torch_sees() if sys.argv[1:] == ["torch"] else None  # first: it makes contexts' rest
    driver.allocate(HELD)
    left, total = driver.memory()
    seen = {
        "cuMemGetInfo": {"total": total, "free": left},
        "cuDeviceTotalMem": {"total": driver.total()},
        "NVML": nvml(driver.uuid()),
    }
    smi = nvidia_smi(driver.uuid())
    failed = smi.pop("failed", None) if smi else None
    if smi:
        seen["nvidia-smi"] = smi
    if torch is not None:
        seen["PyTorch"] = torch_sees()
    say(shim=shim_loaded(), held=HELD, seen=seen, nvidia_smi_failed=failed)
