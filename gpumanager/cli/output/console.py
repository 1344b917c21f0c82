"""The console of the commands that print tables."""

import sys
from typing import Never

from rich.console import Console


class OutputConsole(Console):
    """On standard output, in characters that it has. progress: on standard error.

    Where the reader goes away rich would end the program with status 1; `cli.run` decides that.
    """

    def __init__(self, *, progress: bool = False) -> None:
        file = None if progress else sys.stdout
        super().__init__(file=file, stderr=progress, highlight=False, soft_wrap=progress)

    def on_broken_pipe(self) -> Never:
        raise BrokenPipeError
