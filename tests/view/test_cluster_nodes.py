"""The extender's document of a cluster as nodes that `top` shows."""

import json
import math

import pytest

from gpumanager.view.cluster import read_cluster
from gpumanager.view.values import Seen, as_json

GPU = {"uuid": "GPU-0", "model": "T4", "closed": False, "pods": 1, "memory_bytes": 16 << 30}
DOCUMENT = {
    "version": "1.2.3",
    "pages": 4,
    "nodes": [
        {
            "name": "node-a",
            "gpus": [
                {**GPU, "index": 0, "cores_granted_percent": 60, "memory_granted_bytes": 1 << 30},
                {
                    **GPU,
                    "index": 1,
                    "uuid": "GPU-1",
                    "closed": True,
                    "cores_granted_percent": 100,
                    "memory_granted_bytes": 0,
                },
            ],
            "pods": [
                {"namespace": "a", "pod": "one", "cores": 60, "gpus": [0], "claim": None},
                {"namespace": "a", "pod": "two", "cores": 200, "gpus": [0, 1], "claim": None},
                {"namespace": "a", "pod": "mixed", "cores": 90, "gpus": [0, 1], "claim": "c"},
                {"namespace": "a", "pod": "unknown", "cores": 90, "gpus": None, "claim": None},
            ],
        }
    ],
}


def test_pods_stand_on_the_gpus_that_they_have() -> None:
    (node,), pages = read_cluster(DOCUMENT)

    assert (node.name, pages) == ("node-a", 4)
    assert [gpu.healthy for gpu in node.gpus] == [True, False]
    shares = [[(row.short, row.granted) for row in gpu.containers] for gpu in node.gpus]
    assert shares[0][:2] == [("a/one", 60), ("a/two", 100)]
    assert shares[1][0] == ("a/two", 100)
    assert math.isnan(shares[1][1][1])


def test_what_is_not_told_is_null_in_json() -> None:
    (node,), _ = read_cluster(DOCUMENT)

    record = json.loads(json.dumps(as_json(Seen("x", node)), allow_nan=False))

    assert record["gpus"][1]["containers"][1]["share_promised_percent"] is None


@pytest.mark.parametrize("document", [{}, {"version": "1", "nodes": [{}], "pages": 1}, []])
def test_another_document_is_an_error(document: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_cluster(document)  # type: ignore[arg-type]
