"""Test suites of others: every single test ends behind the shim as it does without.

Not all pass: kernels of the simulated driver compute nothing, and it lacks some of a real one's
functions. Which do is up to the driver, and must not be changed by the shim.
"""

import pytest

from tests.clients.client_box import client_box
from tests.clients.counts import keep
from tests.clients.sources import Unavailable
from tests.clients.suites import SUITES, Suite, compare

pytestmark = [pytest.mark.namespaces]


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(
            suite,
            id=f"{suite.name}: {suite.tests}",
            marks=pytest.mark.clients if suite.quick else pytest.mark.all_clients,
        )
        for suite in SUITES
    ],
)
async def test_every_test_of_a_foreign_suite_ends_behind_the_shim_as_bare(suite: Suite) -> None:
    try:
        plan = suite.plan()
    except Unavailable as why:
        pytest.skip(f"{suite.name}: {why}")
    async with client_box(suite.gpus) as clients:
        compared = await compare(clients, suite, plan)

    keep(suite, compared)
    assert compared.unlike == {}
    if suite.launches:
        assert compared.launches[0] == compared.launches[1] > 0
    assert len(compared.bare) >= suite.ran
    assert compared.counts[0]["passed"] >= suite.passed
