"""In which namespaces somebody protects pods by a PodDisruptionBudget.

Which pods a budget counts, and how many may go, is for those who evict to find out. Here it is
enough to know where nobody is protected.
"""

from collections import Counter
from typing import Any


class DisruptionBudgets:
    """Budgets by namespace, as `kube.informer.Informer` tells of them."""

    path = "/apis/policy/v1/poddisruptionbudgets"

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._namespaces: Counter[str] = Counter()

    def protects(self, namespace: str) -> bool:
        """Whether any pod there may be protected."""
        return self._namespaces[namespace] > 0

    def name(self, item: Any) -> str:
        return f"{item['metadata']['namespace']}/{item['metadata']['name']}"

    def put(self, item: Any) -> None:
        namespace, key = str(item["metadata"]["namespace"]), self.name(item)
        if key not in self._known:
            self._known[key] = namespace
            self._namespaces[namespace] += 1

    def remove(self, item: Any) -> None:
        self._forget(self.name(item))

    def only(self, names: set[str]) -> None:
        for key in self._known.keys() - names:
            self._forget(key)

    def _forget(self, key: str) -> None:
        namespace = self._known.pop(key, None)
        if namespace is not None:
            self._namespaces[namespace] -= 1
