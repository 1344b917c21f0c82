"""The benchmark of claims that come and go: what it counts."""

import random

import claims_churn
import pytest
from claims_churn import EXTENDER, ORDER, STOCK, TIERS, Cluster


def cluster(setting: str, nodes: int = 1) -> Cluster:
    return Cluster(nodes, setting, random.Random(1))


def test_gpus_beyond_the_least_are_counted() -> None:
    """Shares of 70 and 50 need two GPUs, as 120 cores do at the least. Of 50 and 20 is one too many
    in use, since 70 cores would do with one."""
    one = cluster(STOCK)
    assert one.add("a", 70)
    assert one.add("b", 50)
    assert one.add("c", 20)
    assert one.beyond_the_least() == 0

    one.remove("a")

    assert one.beyond_the_least() == 1


def test_a_pod_that_fits_nowhere_is_gone() -> None:
    one = cluster(ORDER)
    for number in range(claims_churn.GPUS):
        assert one.add(f"p{number}", 70)

    assert not one.add("last", 50)
    one.remove("p0")
    assert one.add("last", 50)


@pytest.mark.parametrize("setting", [TIERS, EXTENDER])
def test_a_share_joins_the_gpu_in_use_on_whatever_node(setting: str) -> None:
    one = cluster(setting, nodes=3)
    for number in range(3):
        assert one.add(f"p{number}", 30)

    assert one.beyond_the_least() == 0


def test_the_same_pods_come_whatever_the_setting() -> None:
    """With one node and one size there is nothing to choose but the order."""
    found = {name: claims_churn.churn(name, 2, 30, 0.5, seed=3) for name in (STOCK, EXTENDER)}

    assert found[EXTENDER] <= found[STOCK]
