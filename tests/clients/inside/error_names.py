"""The driver's errors that a text names, as the bindings of several languages spell them."""

import re
from typing import Final

_ERROR: Final = re.compile(
    r"CUDA_ERROR_\w+|NVML_ERROR_\w+|DriverError\([^)]*\)|NVMLError\w+|Err` value: \w+"
)


def error_names(text: str) -> list[str]:
    return sorted(set(_ERROR.findall(text)))
