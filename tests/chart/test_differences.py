"""What a golden of differences says, and that it is believed only beside what it was made of."""

import pytest

from tests.chart import differences
from tests.chart.differences import StaleDifference

BEFORE = """\
---
kind: Service
metadata:
  name: one
spec:
  ports: # of pods
    - name: http
      port: 80
---
kind: Service
metadata:
  name: two
"""
AFTER = BEFORE.replace("80\n", "81\n    - port: 82\n").replace("name: two", "name: three")
CHANGE = """\
removed: Service two
changed: Service one
@@ 7 spec.ports.http
-      port: 80
+      port: 81
+    - port: 82
added: Service three
| kind: Service
| metadata:
|   name: three
"""


def test_a_difference_names_objects_and_the_keys_that_changed() -> None:
    before, after = differences.objects(BEFORE), differences.objects(AFTER)

    assert differences.difference(before, after) == CHANGE
    assert differences.text(differences.applied(before, CHANGE)) == AFTER
    assert differences.applied(before, differences.difference(before, before)) == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("changed: Service one\n@@ 7\n-      port: 79\n", id="another line is there"),
        pytest.param("changed: Service one\n@@ 8\n-      port: 80\n", id="the object ends before"),
        pytest.param("removed: Service three\n", id="nothing to remove"),
        pytest.param("changed: Service three\n@@ 1\n+a\n", id="nothing to change"),
        pytest.param("added: Service two\n| a\n", id="it is there already"),
    ],
)
def test_a_difference_from_something_else_is_refused(change: str) -> None:
    with pytest.raises(StaleDifference):
        differences.applied(differences.objects(BEFORE), change)


def test_an_object_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="Service one comes twice"):
        differences.objects(BEFORE.replace("two", "one"))
