"""How many GPUs a namespace may use."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.quota.limits import (
    NamespaceQuota,
    NodeClass,
    NodeClasses,
    QuotaUnreadable,
    read_config_map,
    read_quotas,
    why_never_fits,
)
from gpumanager.scheduler.quota.rules import Usage, admits, count
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit

M40 = NodeClass(frozenset({"M40"}), "public")
A100 = NodeClass(frozenset({"A100", "NVIDIA-A100-SXM4-80GB"}), "private")
QUOTAS = read_quotas('{"research": {"quota": {"M40": 2, "A100": 1}, "pool": ["public"]}}')


def used(cores: int, node: NodeClass = M40, namespace: str = "research") -> Usage:
    usage = Usage()
    count(usage, namespace, node, cores)
    return usage


def test_a_namespace_may_use_as_many_gpus_of_a_model_as_it_has() -> None:
    assert admits(QUOTAS, "research", 200, M40, Usage()) is None
    assert admits(QUOTAS, "research", 30, M40, used(170)) is None


def test_a_namespace_that_would_use_more_is_told_how_much_it_has() -> None:
    found = admits(QUOTAS, "research", 40, M40, used(170))

    assert found == Unfit(
        "node(s) exceeded the GPU quota of namespace research "
        "(requested: M40=0.4, used: M40=1.7, limited: M40=2)",
        "it has M40",
        final=True,
    )


def test_what_other_namespaces_use_does_not_count() -> None:
    assert admits(QUOTAS, "research", 200, M40, used(800, namespace="other")) is None


def test_a_namespace_that_is_not_named_has_no_limit() -> None:
    assert admits(QUOTAS, "other", 1600, A100, used(1600, A100, "other")) is None


def test_a_model_that_is_not_named_may_not_be_used() -> None:
    found = admits(QUOTAS, "research", 30, NodeClass(frozenset({"T4"}), "public"), Usage())

    assert found == Unfit(
        "node(s) didn't have a GPU model that namespace research may use (A100, M40)",
        "it has T4",
        final=True,
    )


def test_a_node_of_another_pool_may_not_be_used() -> None:
    found = admits(QUOTAS, "research", 30, A100, Usage())

    assert found == Unfit(
        "node(s) didn't match the GPU pools of namespace research (public)",
        "its pool is 'private'",
        final=True,
    )


def test_of_many_models_a_refusal_names_a_few() -> None:
    quotas = {"n": NamespaceQuota({f"M{number}": 1 for number in range(1000)})}

    found = admits(quotas, "n", 30, A100, Usage())

    assert found is not None
    assert found.phrase.endswith("(M0, M1, M10, M100, M101, …)")


@pytest.mark.parametrize(
    ("cores", "words"),
    [(0, ""), (30, ""), (200, ""), (300, "quota of namespace research is A100=1, M40=2, and")],
)
def test_a_pod_that_asks_for_more_than_any_model_has_could_never_come_in(
    cores: int, words: str
) -> None:
    found = why_never_fits(QUOTAS, "research", cores)

    assert words in found
    assert bool(words) == bool(found)
    assert why_never_fits(QUOTAS, "other", cores) == ""


def test_a_namespace_with_pools_alone_may_have_any_number() -> None:
    assert why_never_fits(read_quotas('{"n": {"pool": ["a"]}}'), "n", 6400) == ""
    assert why_never_fits(read_quotas('{"n": {"quota": {}}}'), "n", 1) != ""


def test_without_pools_every_node_may_be_used() -> None:
    quotas = {"research": NamespaceQuota({"A100": 1})}

    assert admits(quotas, "research", 100, A100, Usage()) is None


def test_without_a_quota_only_the_pools_count() -> None:
    quotas = read_quotas('{"research": {"pool": ["private"]}}')

    assert admits(quotas, "research", 1600, A100, Usage()) is None
    assert admits(quotas, "research", 30, M40, Usage()) is not None


def test_an_empty_quota_lets_nothing_in_but_pods_without_gpus() -> None:
    quotas = read_quotas('{"research": {"quota": {}}}')

    assert admits(quotas, "research", 1, M40, Usage()) is not None
    assert admits(quotas, "research", 0, M40, Usage()) is None


def test_a_node_goes_by_every_name_of_its_gpus() -> None:
    quotas = read_quotas('{"n": {"quota": {"A100": 4, "NVIDIA-A100-SXM4-80GB": 1}}}')

    assert admits(quotas, "n", 100, A100, Usage()) is None
    assert admits(quotas, "n", 200, A100, Usage()) is not None


def test_a_node_is_known_by_the_originals_labels_and_ours() -> None:
    labels = {
        "tkestack.io/gpu-model": "M40",
        "gaia.tencent.com/gpu-model": "M40",
        "tencent.com/gpu-product": "Tesla-M40-24GB",
        "tkestack.io/gpu-pool": "public",
    }

    assert NodeClass.of(labels) == NodeClass(frozenset({"M40", "Tesla-M40-24GB"}), "public")
    assert NodeClass.of({}) == NodeClass()


steps = st.tuples(st.sampled_from(["research", "b"]), st.sampled_from([1, 30, 50, 100, 200]))


@given(st.lists(st.tuples(steps, st.booleans()), max_size=40))
def test_whoever_comes_and_goes_nobody_ever_has_more_than_the_quota(
    history: list[tuple[tuple[str, int], bool]],
) -> None:
    usage = Usage()
    there: list[tuple[str, NodeClass, int]] = []
    for (namespace, cores), goes in history:
        if goes and there:
            count(usage, *there.pop())
        elif admits(QUOTAS, namespace, cores, M40, usage) is None:
            count(usage, namespace, M40, cores)
            there.append((namespace, M40, -cores))

        held = -sum(cores for name, _, cores in there if name == "research")
        assert usage["research", "M40"] == held <= 200


def test_the_originals_config_map_is_read() -> None:
    text = '{"foo":{"quota":{"M40":8},"pool":["public"]}}'

    quotas = read_config_map({"metadata": PLACE, "data": {"gpu_quota": text}})

    assert quotas == {"foo": NamespaceQuota({"M40": 8}, frozenset({"public"}))}


@pytest.mark.parametrize("more", [{}, {"data": {}}, {"data": {"gpu_quota": " "}}], ids=str)
def test_without_its_key_nobody_has_a_limit(more: Any) -> None:
    assert read_config_map({"metadata": PLACE, **more}) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": {"quota": {"M40": 8}}', "line 1, column"),
        ('{\n "a": {,}}', "line 2, column"),
        ("[]", "the whole is list"),
        ('{"a": 8}', "a is int"),
        ('{"a": {"quota": 8}}', "a.quota is int"),
        ('{"a": {"quota": {"M40": "8"}}}', "a.quota.M40: '8' is not a number of GPUs"),
        ('{"a": {"quota": {"M40": -1}}}', "a.quota.M40: -1"),
        ('{"a": {"quota": {"M40": 1.5}}}', "a.quota.M40: 1.5"),
        ('{"a": {"quota": {"M40": true}}}', "a.quota.M40: True"),
        ('{"a": {"pool": "public"}}', "a.pool: write a list"),
        ('{"a": {"pool": [""]}}', "a.pool: write a list"),
        ('{"a": {"quotas": {}}}', "'quotas' is not known"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": {"quota": {"M40": ' + "9" * 5000 + "}}}", "digits"),
    ],
    ids=lambda one: one[:40],
)
def test_a_mistake_is_named_with_its_place(text: str, words: str) -> None:
    with pytest.raises(QuotaUnreadable, match="gpuquota") as caught:
        read_config_map({"metadata": PLACE, "data": {"gpu_quota": text}})

    assert words in str(caught.value)
    assert "ConfigMap kube-system/gpuquota" in str(caught.value)


PLACE = {"namespace": "kube-system", "name": "gpuquota"}
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["quota", "pool", "a"]), inner, max_size=3)
    ),
)


@given(trees)
def test_whatever_stands_there_it_is_read_or_refused(content: Any) -> None:
    try:
        read_quotas(json.dumps(content))
    except QuotaUnreadable:
        return
    assert isinstance(content, dict)


moves = st.tuples(st.sampled_from("abc"), st.sampled_from([None, M40, A100]))


@given(st.lists(moves, max_size=30))
def test_nodes_are_found_by_what_they_are_now(history: list[tuple[str, NodeClass | None]]) -> None:
    classes, there = NodeClasses(), dict[str, NodeClass | None]()
    for name, kind in history:
        classes.move(name, there.get(name), kind)
        there[name] = kind

        now = {kind for kind in there.values() if kind is not None}
        assert classes.members == {
            kind: {name for name, one in there.items() if one == kind} for kind in now
        }
