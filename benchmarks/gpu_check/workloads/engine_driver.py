"""Kernels that spin for so many nanoseconds, through the driver API alone."""

from driver import Driver


class Engine:
    """A kernel's size is its length in microseconds."""

    def __init__(self):
        self.driver = Driver()
        self._spin = None
        self._stream = self.driver.stream()
        self._graph = None
        self._size, self._kernels = 1, 1

    def size_for(self, micros):
        return micros

    def micros(self, size):
        return size

    def load(self, size, pattern, kernels):
        self._size, self._kernels = size, kernels
        self._spin = self.driver.function(self.driver.module(), "spin")  # of its own cost
        self._graph = self.driver.graph(self._stream, self._fill) if pattern == "graph" else None

    def unit(self):
        """Launch one; what to wait for."""
        if self._graph is None:
            self._fill()
        else:
            self.driver.call("cuGraphLaunch", self._graph, self._stream)
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
            self.driver.spin(self._spin, self._size * 1000, self._stream)
