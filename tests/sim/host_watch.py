"""A watch on the machine, for tests that measure shares on the real clock."""

import pytest

from gpumanager.sim import host_watch


class HostWatch(host_watch.HostWatch):
    """Use around what is measured, some of which may be done by this very program."""

    def waited(self, late: float) -> float:
        return late

    def expect(self, what: object, *, holds: bool) -> None:
        """What a busy machine may keep from being so. It is no measurement then, and skipped."""
        if not holds and self.busy:
            pytest.skip(f"the machine was late by {self.late:.0%} of the time: {what}")
        assert holds, what
