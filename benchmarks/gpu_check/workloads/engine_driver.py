"""Kernels of so many rounds of work on every multiprocessor, through the driver API alone."""

from driver import MULTIPROCESSORS, THREADS, Driver

TIMING = 0
WARM, TIMED = 3, 10
FIRST = 100_000
"""Rounds of the first guess; some 0.5 ms on a GPU of 2022."""


class Engine:
    """A kernel's size is its rounds."""

    ahead = 3

    def __init__(self):
        self.driver = Driver()
        self._blocks = self.driver.attribute(MULTIPROCESSORS)
        self._spin = None
        self._stream = self.driver.stream()
        self._size, self._kernels = 1, 1

    def size_for(self, micros):
        """The rounds that take so long: of a first guess, and then of one near it."""
        size = FIRST
        for _ in range(2):
            size = max(1, round(size * micros / self.micros(size)))
        return size

    def micros(self, size):
        """How long one takes, queued behind others."""
        self.load(size, 1)
        before, after = self.driver.event(TIMING), self.driver.event(TIMING)
        for _ in range(WARM):
            self._fill()
        self.driver.call("cuEventRecord", before, self._stream)
        for _ in range(TIMED):
            self._fill()
        self.driver.call("cuEventRecord", after, self._stream)
        self.driver.call("cuEventSynchronize", after)
        return self.driver.micros(before, after) / TIMED

    def load(self, size, kernels):
        self._spin = self.driver.function(self.driver.module(), "spin")
        self._size, self._kernels = size, kernels

    def unit(self):
        """Launch one; what to wait for."""
        self._fill()
        event = self.driver.event()
        self.driver.call("cuEventRecord", event, self._stream)
        return event

    def wait(self, event):
        self.driver.call("cuEventSynchronize", event)
        self.driver.call("cuEventDestroy_v2", event)

    def synchronize(self):
        self.driver.synchronize()

    def _fill(self):
        for _ in range(self._kernels):
            self.driver.spin(self._spin, self._size, self._stream, self._blocks, THREADS)
