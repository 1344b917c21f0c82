"""A short part of each random attack; `make hostile` goes on for longer, with other seeds."""

import pytest

from tests.hostile import random_attacks

pytestmark = pytest.mark.namespaces

SECONDS = 2
SEED = 20261122


@pytest.mark.parametrize("attack", random_attacks.ATTACKS)
async def test_no_random_attack_harms_the_agent_or_a_neighbour(attack: str) -> None:
    assert await random_attacks.attacked(attack, SEED, SECONDS) > 0
