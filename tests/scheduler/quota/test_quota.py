"""How many GPUs a namespace may use."""

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.quota.limits import (
    NamespaceQuota,
    NodeClass,
    NodeClasses,
    Quotas,
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


T4 = NodeClass(frozenset({"T4"}), "public")
EMPTY = read_quotas('{"research": {"quota": {}}}')
POOL = read_quotas('{"research": {"pool": ["private"]}}')
BOTH = read_quotas('{"research": {"quota": {"A100": 4, "NVIDIA-A100-SXM4-80GB": 1}}}')
OPEN = {"research": NamespaceQuota({"A100": 1})}
MANY = {"research": NamespaceQuota({f"M{number}": 1 for number in range(1000)})}
EXCEEDED = Unfit(
    "node(s) exceeded the GPU quota of namespace research "
    "(requested: M40=0.4, used: M40=1.7, limited: M40=2)",
    "it has M40",
    final=True,
)
MODEL = Unfit(
    "node(s) didn't have a GPU model that namespace research may use (A100, M40)",
    "it has T4",
    final=True,
)
OTHER_POOL = Unfit(
    "node(s) didn't match the GPU pools of namespace research (public)",
    "its pool is 'private'",
    final=True,
)


class Asked(NamedTuple):
    """A pod of the namespace research, and the cores that others use there already."""

    cores: int
    node: NodeClass = M40
    quotas: Quotas = QUOTAS
    used: int = 0
    of: str = "research"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param(Asked(200), None, id="as many GPUs of a model as it has"),
        pytest.param(Asked(30, used=170), None, id="the last share of what it has"),
        pytest.param(Asked(40, used=170), EXCEEDED, id="one that would use more is told how much"),
        pytest.param(Asked(200, used=800, of="other"), None, id="others do not count"),
        pytest.param(Asked(30, T4), MODEL, id="a model that is not named may not be used"),
        pytest.param(Asked(30, A100), OTHER_POOL, id="nor a node of another pool"),
        pytest.param(Asked(100, A100, OPEN), None, id="without pools every node may be used"),
        pytest.param(Asked(1600, A100, POOL), None, id="without a quota only pools count"),
        pytest.param(Asked(0, M40, EMPTY), None, id="an empty quota lets in pods without GPUs"),
        pytest.param(Asked(100, A100, BOTH), None, id="a node goes by every name of its GPUs"),
    ],
)
def test_a_namespace_may_use_what_its_quota_says(asked: Asked, why: Unfit | None) -> None:
    usage = Usage()
    count(usage, asked.of, asked.node, asked.used)

    assert admits(asked.quotas, "research", asked.cores, asked.node, usage) == why


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        pytest.param(Asked(1, M40, EMPTY), "may use (none)", id="an empty quota"),
        pytest.param(Asked(30, M40, POOL), "GPU pools", id="another pool without a quota"),
        pytest.param(Asked(200, A100, BOTH), "limited: NVIDIA-A100", id="the smaller of two names"),
        pytest.param(Asked(30, A100, MANY), "(M0, M1, M10, M100, M101, …)", id="many models"),
    ],
)
def test_a_refusal_says_what_it_may_use(asked: Asked, words: str) -> None:
    found = admits(asked.quotas, "research", asked.cores, asked.node, Usage())

    assert found is not None
    assert words in found.phrase


def test_a_namespace_that_is_not_named_has_no_limit() -> None:
    assert admits(QUOTAS, "other", 1600, A100, Usage({("other", "A100"): 1600})) is None
    assert why_never_fits(QUOTAS, "other", 6400) == ""


@pytest.mark.parametrize(
    ("cores", "quotas", "words"),
    [
        (0, QUOTAS, None),
        (30, QUOTAS, None),
        (200, QUOTAS, None),
        (300, QUOTAS, "quota of namespace research is A100=1, M40=2, and this pod asks for 3"),
        (6400, POOL, None),
        (1, EMPTY, "is no GPU, and"),
    ],
)
def test_a_pod_that_asks_for_more_than_any_model_has_could_never_come_in(
    cores: int, quotas: Quotas, words: str | None
) -> None:
    found = why_never_fits(quotas, "research", cores)

    assert found == "" if words is None else words in found


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
