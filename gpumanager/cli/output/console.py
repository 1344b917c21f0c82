"""The console of the commands that print tables."""

import sys
from typing import Never

from rich.console import Console


class OutputConsole(Console):
    """On standard output, in characters that it has.

    Where the reader goes away rich would end the program with status 1; `cli.run` decides that.
    """

    def __init__(self) -> None:
        super().__init__(file=sys.stdout, highlight=False)

    def on_broken_pipe(self) -> Never:
        raise BrokenPipeError


class ProgressConsole(Console):
    """On standard error; a reader that closes the progress still wants the result."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> Never:
        raise BrokenPipeError
