"""Why a container got its GPUs: the sentence the agent wrote into its journal."""

from pathlib import Path

from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.ids import AllocationID


def why(checkpoint: Path, allocation: str) -> str:
    """Empty for a container without GPUs; raises JournalUnreadable."""
    if not allocation:
        return ""
    found = JournalFile(checkpoint / FILE_NAME).load().get(AllocationID(allocation))
    return found.why if found is not None else ""
