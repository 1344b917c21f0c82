"""How a kubelet treats DRA drivers and pods with claims. Each kubelet runs these cases by importing
them all, with a fixture `claims_kubelet` of its own.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"tests.contracts.dra.{name}" for name in ("claim_cases", "driver_cases", "health_cases"))
)

from tests.contracts.dra.claim_cases import *  # noqa: E402, F403
from tests.contracts.dra.claims_stage import stage  # noqa: E402, F401
from tests.contracts.dra.driver_cases import *  # noqa: E402, F403
from tests.contracts.dra.health_cases import *  # noqa: E402, F403
