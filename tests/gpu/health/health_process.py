"""NVML's health source in a process of its own: a question a line, an answer a line, in JSON.

In: ["gpus"], ["wait", seconds], ["probe", uuid], ["events"], ["reopen"].
Out: {"answer": …} or {"error": text}.
"""

import dataclasses
import json
import sys
from typing import Any

from gpumanager.gpu.health.events import NvmlHealth
from gpumanager.gpu.nvml import NvmlError


def plain(answer: Any) -> Any:
    """Values as [type, fields]."""
    if isinstance(answer, tuple):
        return [plain(one) for one in answer]
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        return [type(answer).__name__, dataclasses.asdict(answer)]
    return answer


def main() -> None:
    source = NvmlHealth()
    questions: dict[str, Any] = {
        "gpus": source.gpus,
        "wait": source.wait,
        "probe": source.probe,
        "events": source.tells_events,
        "reopen": source.reopen,
    }
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"answer": plain(questions[name](*arguments))}
        except NvmlError as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
