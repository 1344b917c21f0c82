"""How a kubelet treats device plugins. Each kubelet runs these cases by importing them all, with a
fixture `kubelet` of its own.
"""

import pytest

pytest.register_assert_rewrite(
    "admission_cases", "books_cases", "pods_api_cases", "registration_cases"
)

from admission_cases import *  # noqa: E402, F403
from books_cases import *  # noqa: E402, F403
from kubelet_stage import stage  # noqa: E402, F401
from pods_api_cases import *  # noqa: E402, F403
from registration_cases import *  # noqa: E402, F403
