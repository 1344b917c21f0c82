"""How a kubelet treats device plugins. Each kubelet runs these cases by importing them all, with a
fixture `kubelet` of its own.
"""

import pytest

pytest.register_assert_rewrite(
    "admission_cases", "books_cases", "pods_api_cases", "registration_cases"
)

from tests.contracts.kubelet.admission_cases import *  # noqa: E402, F403
from tests.contracts.kubelet.books_cases import *  # noqa: E402, F403
from tests.contracts.kubelet.kubelet_stage import stage  # noqa: E402, F401
from tests.contracts.kubelet.pods_api_cases import *  # noqa: E402, F403
from tests.contracts.kubelet.registration_cases import *  # noqa: E402, F403
