"""A rate, and a burst."""

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.limits.socket.bounds import TokenBucket


def test_a_burst_is_taken_at_once_and_comes_back_with_time() -> None:
    bucket = TokenBucket(rate=10, burst=5)

    assert [bucket.take(0.0) for _ in range(6)] == [True] * 5 + [False]
    assert [bucket.take(0.25) for _ in range(3)] == [True, True, False]


def test_who_wants_more_than_there_can_be_takes_all() -> None:
    bucket = TokenBucket(rate=10, burst=5)

    assert bucket.take(0.0, tokens=1000)
    assert not bucket.take(0.4, tokens=1000)
    assert bucket.take(0.6, tokens=1000)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 10)), max_size=50))
def test_no_more_is_taken_than_has_come(asked: list[tuple[float, float]]) -> None:
    bucket, now, taken = TokenBucket(rate=10, burst=5), 0.0, 0.0

    for later, tokens in asked:
        now += later
        taken += min(tokens, 5) * bucket.take(now, tokens)
        assert taken <= 5 + 10 * now + 1e-6
