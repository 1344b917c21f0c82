"""Which labels the series of a query have, and whether it asks for any that are not there.

The parser is Prometheus' own grammar, from the package promql-parser. Rules of labels:
prometheus.io/docs/prometheus/latest/querying/operators.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.dashboards.exported import Labels

NOTHING: Final[Labels] = frozenset()
SETS: Final = ("and", "unless")
KEEPING: Final = ("topk", "bottomk")


class AsksForNothing(Exception):
    """A metric or a label that no program has, or two sides that can never meet."""


class Reader:
    """known: the labels of each metric."""

    def __init__(self, known: Mapping[str, Labels]) -> None:
        import promql_parser

        self._known = known
        self._parse: Callable[[str], Any] = promql_parser.parse

    def labels(self, query: str) -> Labels | None:
        """Of the series it gives; None of a plain number. Raises AsksForNothing, ValueError."""
        return self._of(self._parse(query))

    def _of(self, node: Any) -> Labels | None:
        kind = type(node).__name__
        return getattr(self, f"_{kind}")(node)  # type: ignore[no-any-return]

    def _VectorSelector(self, node: Any) -> Labels:  # noqa: N802
        matchers = [one for one in node.matchers.matchers if one.name != "__name__"]
        named = [one.value for one in node.matchers.matchers if one.name == "__name__"]
        several = named[0].split("|") if named else [node.name]
        for name in several:
            if name not in self._known:
                raise AsksForNothing(f"no program tells {name}")
            _within((one.name for one in matchers), self._known[name], name)
        return frozenset.intersection(*(self._known[name] for name in several))

    def _MatrixSelector(self, node: Any) -> Labels:  # noqa: N802
        return self._VectorSelector(node.vector_selector)

    def _ParenExpr(self, node: Any) -> Labels | None:  # noqa: N802
        return self._of(node.expr)

    def _NumberLiteral(self, node: Any) -> None:  # noqa: N802
        return None

    def _Call(self, node: Any) -> Labels | None:  # noqa: N802
        vectors = [found for one in node.args if (found := self._of(one)) is not None]
        if node.func.name == "absent":
            return NOTHING
        if node.func.name == "histogram_quantile":
            _within(["le"], vectors[0], "histogram_quantile")
            return vectors[0] - {"le"}
        return vectors[0] if vectors else None

    def _AggregateExpr(self, node: Any) -> Labels:  # noqa: N802
        inside = self._of(node.expr) or NOTHING
        if str(node.op) in KEEPING:
            return inside
        if node.modifier is None:
            return NOTHING
        _within(node.modifier.labels, inside, str(node.op))
        return frozenset(node.modifier.labels)

    def _BinaryExpr(self, node: Any) -> Labels | None:  # noqa: N802
        left, right = self._of(node.lhs), self._of(node.rhs)
        if left is None or right is None:
            return left if right is None else right
        operator = str(node.op)
        if operator == "or":
            return left & right
        matching = node.modifier and node.modifier.matching
        if matching:
            _within(matching.labels, left & right, operator)
            if operator not in SETS:
                _alone(set(matching.labels), left, right, str(node.modifier.card))
        elif left != right:
            raise AsksForNothing(f"{operator}: {sorted(left ^ right)} on one side only")
        return left if operator in SETS or not matching else frozenset(matching.labels)


def _alone(on: set[str], left: Labels, right: Labels, card: str) -> None:
    """A side of which one series has to meet each of the other's is told apart by `on` alone. Where
    it is not, the query works until, for example, two containers of a pod have a claim each."""
    sides = {"left": left} if card.endswith("OneToMany") else {"right": right}
    if card.endswith("OneToOne"):
        sides = {"left": left, "right": right}
    for side, labels in sides.items():
        if more := labels - on:
            raise AsksForNothing(f"several series on the {side}: by {', '.join(sorted(more))} too")


def _within(asked: Any, there: Labels, what: str) -> None:
    if missing := set(asked) - there:
        raise AsksForNothing(f"{what} has no {', '.join(sorted(missing))}")
