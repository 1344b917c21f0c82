"""numba-cuda's own tests of its driver layer: with the shim each ends as it does without.

Kernels of the simulated driver compute nothing, so not all pass; which ones do is up to the driver,
and must not be changed by the shim.
"""

from collections import Counter

import pytest
from client_box import ClientBox

from gpumanager.units import GIB

pytest_plugins = ["client_fixtures"]
pytestmark = [pytest.mark.clients, pytest.mark.namespaces]

RUN = """
import io, re, unittest
import numba.cuda.tests.cudadrv

ends = {}

class Recorder(unittest.TextTestResult):
    def end(self, test, how):
        name = re.sub("0x[0-9a-f]+", "somewhere", test.id())  # of objects in a subtest's arguments
        ends[name] = max(how, ends.get(name, ""))  # the worst of those with one name
    def addSuccess(self, test):
        self.end(test, "passed")
    def addSkip(self, test, why):
        self.end(test, "skipped")
    def addFailure(self, test, error):
        self.end(test, "went wrong")
    def addError(self, test, error):
        self.end(test, "went wrong")
    def addSubTest(self, test, subtest, error):
        self.end(subtest, "passed" if error is None else "went wrong")

suite = unittest.defaultTestLoader.loadTestsFromModule(numba.cuda.tests.cudadrv)
unittest.TextTestRunner(io.StringIO(), resultclass=Recorder).run(suite)
tell(ends=ends)
"""


async def test_every_test_of_numbas_driver_layer_ends_with_the_shim_as_without(
    clients: ClientBox,
) -> None:
    bare = (await clients.python(RUN)).told["ends"]
    limited = (await clients.python(RUN, limit=4 * GIB)).told["ends"]

    changed = {name: (bare.get(name), limited.get(name)) for name in bare.keys() | limited.keys()}
    assert {name: ends for name, ends in changed.items() if ends[0] != ends[1]} == {}
    assert Counter(bare.values())["passed"] > len(bare) / 2
    launched, launched_behind_shim = (account.launches for account in clients.accounts())
    assert launched_behind_shim == launched > 0
