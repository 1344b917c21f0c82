"""Reviews as they are sent, and how they are answered."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.webhook.review import (
    LONGEST_WARNING,
    Decision,
    Review,
    ReviewUnreadable,
    decide_safely,
    differences,
    encode_response,
    read_review,
)
from tests.scheduler.webhook.review_texts import applied, container, pod, response, review

STEP = {"op": "add", "path": "/spec/schedulerName", "value": "gpu-scheduler"}


def answered(asked: Any, decision: Decision | Exception, *, fail_open: bool = True) -> Any:
    def decide(_review: Review) -> Decision:
        if isinstance(decision, Exception):
            raise decision
        return decision

    review = read_review(json.dumps(asked).encode())
    return response(encode_response(review, decide_safely(review, decide, fail_open=fail_open)))


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_review_is_answered_in_the_version_it_was_sent_in(version: str) -> None:
    asked = read_review(json.dumps(review(pod(), version=version)).encode())

    body = json.loads(encode_response(asked, Decision()))

    assert body == {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {"uid": "0d3a2c6e", "allowed": True},
    }


def test_a_patch_is_sent_as_a_json_patch() -> None:
    found = answered(review(pod()), Decision(patch=[STEP]))

    assert found["patchType"] == "JSONPatch"
    assert found["patch"] == [STEP]


def test_a_refusal_says_everything_that_is_wrong_and_changes_nothing() -> None:
    found = answered(review(pod()), Decision(errors=["one", "two"], patch=[STEP]))

    assert found["allowed"] is False
    assert found["status"] == {"code": 422, "reason": "Invalid", "message": "one; two"}
    assert "patch" not in found


def test_warnings_are_cut_to_what_the_api_server_passes_on() -> None:
    found = answered(review(pod()), Decision(warnings=["x" * 1000] * 100))

    assert {len(text) for text in found["warnings"]} == {LONGEST_WARNING}
    assert sum(map(len, found["warnings"])) < 4096


@pytest.mark.parametrize(
    "other",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"subResource": "ephemeralcontainers"},
        {"kind": None},
    ],
    ids=["update", "deletion", "another kind", "a subresource", "no kind"],
)
def test_what_is_not_about_a_new_pod_passes_without_a_look(other: dict[str, Any]) -> None:
    found = answered(review(pod(), **other), Decision(errors=["not asked"]))

    assert found == {"uid": "0d3a2c6e", "allowed": True}


def test_a_fault_of_ours_lets_the_pod_pass_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    found = answered(review(pod()), RuntimeError("no"))

    assert found["allowed"] is True
    assert "could not look at this pod" in found["warnings"][0]
    assert "RuntimeError" in caplog.text


def test_a_fault_of_ours_holds_the_pod_up_where_the_policy_wants_it_so() -> None:
    found = answered(review(pod()), RuntimeError("no"), fail_open=False)

    assert found["allowed"] is False
    assert "could not look at this pod" in found["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"5",
        b"\xff\xfe",
        b'{"apiVersion": "admission.k8s.io/v1"}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": null}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": []}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": {}}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": {"uid": 5}}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "kind": "Pod"}}',
        b'{"apiVersion": "admission.k8s.io/v2", "request": {"uid": "1"}}',
        b'{"apiVersion": {}, "request": {"uid": "1"}}',
        b"[" * 100_000,
        b'{"request":' * 50_000,
    ],
    ids=lambda body: body[:70].decode("latin-1"),
)
def test_what_is_no_review_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ReviewUnreadable):
        read_review(body)


def test_fields_nobody_knows_are_passed_over() -> None:
    asked = {**review(pod(), surprise={"a": []}), "more": None}

    assert read_review(json.dumps(asked).encode()).subject == "pod"


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
)


def test_a_patch_names_only_what_has_changed() -> None:
    before = {"spec": {"kept": 1, "other": 2, "gone": 3, "list": [1, 2]}}
    after = {"spec": {"kept": 1, "other": 4, "a/b": 5, "list": [1, 3]}}

    assert list(differences(before, after)) == [
        {"op": "replace", "path": "/spec/other", "value": 4},
        {"op": "remove", "path": "/spec/gone"},
        {"op": "replace", "path": "/spec/list/1", "value": 3},
        {"op": "add", "path": "/spec/a~1b", "value": 5},
    ]


@given(trees, trees)
def test_the_patch_leads_from_one_object_to_the_other(before: Any, after: Any) -> None:
    found = applied({"a": before}, differences({"a": before}, {"a": after}))

    assert found == {"a": after}


@given(trees, st.sampled_from(["apiVersion", "kind", "request", "uid", "object", "operation"]))
def test_whatever_stands_in_a_field_a_review_is_read_or_refused(value: Any, field: str) -> None:
    asked = review(pod(container()))
    (asked if field in asked else asked["request"])[field] = value

    try:
        found = read_review(json.dumps(asked).encode())
    except ReviewUnreadable:
        return
    body = encode_response(found, decide_safely(found, lambda _: Decision(), fail_open=True))
    assert json.loads(body)["response"]["uid"] == asked["request"]["uid"]
