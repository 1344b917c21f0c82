"""Every shape that a claim may have, as far as the programs in the containers.

The claim's status says which devices the scheduler gave to which request, and the slice what these
are. Beside that the table has nothing of the answer but what is special about a shape: by the
requests that a container names, its programs see just these GPUs, with as much memory as the claim
was given of each.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.units import GIB
from tests.e2e.claims.admin_access import admin_access_allowed
from tests.e2e.claims.real_claims import (
    CLASS,
    Allocated,
    RealClaims,
    admin,
    allocated,
    claiming,
    exactly,
    first_available,
    holder,
)
from tests.e2e.cluster.api_client import Object
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import EVENTS, RealPods, gpus_seen

pytest_plugins = ["tests.e2e.node_fixtures", "tests.e2e.claims.claims_fixtures"]
pytestmark = pytest.mark.e2e

LOOKS: Final = "cuda-play query; echo ready"
HOLDS: Final = f"{LOOKS}; cuda-play hold --memory 38GiB --seconds 600"
WAITS: Final = f"{LOOKS}; sleep 600"
WHOLE: Final = 40 * GIB
CORES: Final = 100
ALL: Final = ""

Special = Callable[[Sequence[Allocated], RealClaims], bool]


@dataclass(frozen=True)
class Shape:
    """A claim, and the containers of the one pod that has it.

    containers, sidecars, init: names, and the requests that they name, with commas between; None:
    none of the claim. is_so: what is special about the allocation.
    """

    name: str
    requests: Sequence[Object]
    containers: Mapping[str, str | None]
    is_so: Special = lambda *_: True
    constraints: Sequence[Object] = ()
    init: Mapping[str, str | None] | None = None
    sidecars: Mapping[str, str | None] | None = None

    @property
    def uses(self) -> Mapping[str, str | None]:
        return {**(self.init or {}), **(self.sidecars or {}), **self.containers}

    def pod(self, source: Object) -> dict[str, Any]:
        described = claiming(
            self.name, source, *(_container(*one, WAITS) for one in self.containers.items())
        )
        described["spec"]["initContainers"] = [
            *(_container(*one, LOOKS) for one in (self.init or {}).items()),
            *(_sidecar(*one) for one in (self.sidecars or {}).items()),
        ]
        return described


def _container(name: str, uses: str | None, command: str) -> dict[str, Any]:
    made = dict(holder(name, command)) | {"imagePullPolicy": "Never"}
    if uses is None:
        del made["resources"]
    elif uses:
        (claim,) = made["resources"]["claims"]
        rows = [claim | {"request": request} for request in uses.split(",")]
        made["resources"] = {"claims": rows}
    return made


def _sidecar(name: str, uses: str | None) -> dict[str, Any]:
    return _container(name, uses, WAITS) | {"restartPolicy": "Always"}


def share(name: str, cores: int, memory: str) -> Object:
    return exactly(name, CLASS, cores=cores, memory=memory)


def whole(name: str, count: int = 1) -> Object:
    return exactly(name, CLASS, count)


def same(attribute: str) -> Object:
    return {"matchAttribute": f"{CLASS}/{attribute}"}


def distinct(attribute: str) -> Object:
    return {"distinctAttribute": f"{CLASS}/{attribute}"}


def of_one(attribute: str) -> Special:
    return lambda given, claims: (
        len({claims.attribute(one.device, attribute) for one in given}) == 1
    )


def all_differ(attribute: str) -> Special:
    return lambda given, claims: (
        len({claims.attribute(one.device, attribute) for one in given}) == len(given)
    )


def of_its_own(given: Sequence[Allocated], _: RealClaims) -> bool:
    """All of its cores: nobody else can have any of its memory."""
    return all(one.consumed["cores"] == CORES for one in given)


def answered_by(*requests: str) -> Special:
    return lambda given, _: [one.request for one in given] == [*requests]


ON_ONE: Final = of_one("uuid")
APART: Final = all_differ("uuid")
TWO: Final = (share("a", 10, "1Gi"), share("b", 50, "4Gi"))
SHAPES: Final = (
    Shape("one-share", [share("gpu", 30, "2Gi")], {"main": ALL}),
    Shape("rounded-up", [share("gpu", 7, "300Mi")], {"main": ALL}),
    Shape("memory-alone", [exactly("gpu", CLASS, memory="2Gi")], {"main": ALL}, of_its_own),
    Shape("cores-alone", [exactly("gpu", CLASS, cores=30)], {"main": ALL}),
    *(Shape(f"{n}-whole", [whole("gpus", n)], {"main": ALL}, APART) for n in range(1, 9)),
    Shape("three-shares", [exactly("g", CLASS, 3, cores=30, memory="2Gi")], {"main": ALL}, APART),
    Shape("requests-apart", TWO, {"a": "a", "b": "b"}, APART, [distinct("uuid")]),
    Shape("requests-on-one", TWO, {"a": "a", "b": "b"}, ON_ONE),
    Shape("all-requests", TWO, {"main": ALL}, ON_ONE),
    Shape("all-requests-apart", TWO, {"main": ALL}, APART, [distinct("uuid")]),
    Shape("both-named", TWO, {"main": "a,b"}, APART, [distinct("uuid")]),
    Shape("one-of-two", TWO, {"main": "b"}),
    Shape("one-request-of-many", [share("gpu", 30, "2Gi")], {"a": "gpu", "b": "gpu", "c": ALL}),
    Shape("beside-none", [share("gpu", 30, "2Gi")], {"main": "gpu", "plain": None}),
    Shape("whole-and-share", [whole("w"), share("s", 30, "2Gi")], {"w": "w", "s": "s"}, APART),
    Shape("whole-beside-share", [whole("w"), share("s", 30, "2Gi")], {"main": ALL}, APART),
    Shape("init", TWO, {"main": "b"}, init={"first": "a", "second": "b"}),
    Shape("sidecar", TWO, {"main": "b"}, sidecars={"beside": "a"}),
    Shape("init-of-all", [share("gpu", 30, "2Gi")], {"main": ALL}, init={"first": ALL}),
    Shape(
        "second-alternative",
        [first_available("gpu", large=share("", 30, "64Gi"), small=share("", 30, "2Gi"))],
        {"main": "gpu"},
        answered_by("gpu/small"),
    ),
    Shape(
        "first-alternative",
        [first_available("gpu", whole=whole("", 2), share=share("", 30, "2Gi"))],
        {"main": ALL},
        answered_by("gpu/whole", "gpu/whole"),
    ),
    Shape("one-numa-node", [whole("g", 4)], {"main": ALL}, of_one("numa"), [same("numa")]),
    Shape("one-pair", [whole("g", 2)], {"main": ALL}, of_one("nvlink"), [same("nvlink")]),
    Shape(
        "one-pair-for-two",
        [whole("w"), share("s", 30, "2Gi")],
        {"w": "w", "s": "s"},
        of_one("nvlink"),
        [same("nvlink")],
    ),
    Shape("numa-nodes-apart", TWO, {"a": "a", "b": "b"}, all_differ("numa"), [distinct("numa")]),
)


@pytest.fixture
def in_use(claims: RealClaims, pods: RealPods) -> None:
    """The first GPU that would be given has a share already, so that it is no whole one."""
    source = claims.template("in-use", share("gpu", 10, "1Gi"))
    pods.create(claiming("in-use", source, holder("main", WAITS)))
    pods.printed("in-use", "main", "ready")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: one.name)
def test_programs_see_what_the_claim_was_given(
    shape: Shape, claims: RealClaims, pods: RealPods
) -> None:
    source = claims.template(shape.name, *shape.requests, constraints=[*shape.constraints])

    uid = pods.create(shape.pod(source))

    seen = {name: gpus_seen(pods.printed(shape.name, name, "ready")) for name in shape.uses}
    given = allocated(claims.of_pod(uid))
    assert shape.is_so(given, claims)
    assert seen == {name: _given(given, uses, claims) for name, uses in shape.uses.items()}
    assert claims.accounts().overbooked == []


def _given(given: Sequence[Allocated], uses: str | None, claims: RealClaims) -> dict[GpuUUID, int]:
    """What a container is to see that uses these requests. A GPU of its own it has wholly."""
    found: Counter[GpuUUID] = Counter()
    for one in given if uses is not None else ():
        if not uses or one.request.partition("/")[0] in uses.split(","):
            own = one.consumed["cores"] == CORES
            found[claims.uuid(one.device)] += WHOLE if own else int(one.consumed["memory"])
    return dict(found)


@pytest.mark.parametrize(("count", "attribute"), [(2, "nvlink"), (4, "numa")])
def test_gpus_that_are_to_be_near_are_found_behind_one_that_is_in_use(
    in_use: None, claims: RealClaims, pods: RealPods, count: int, attribute: str
) -> None:
    source = claims.template("near", whole("g", count), constraints=[same(attribute)])

    uid = pods.create(claiming("near", source, holder("main", WAITS)))

    seen = gpus_seen(pods.printed("near", "main", "ready"))
    given = allocated(claims.of_pod(uid))
    assert of_one(attribute)(given, claims)
    assert seen == _given(given, ALL, claims)
    assert claims.accounts().overbooked == []


@pytest.mark.parametrize(
    ("name", "request_", "constraint"),
    [
        ("three-of-a-pair", whole("g", 3), same("nvlink")),
        ("five-of-four", whole("g", 5), same("numa")),
        ("nine", whole("g", 9), None),
        ("too-much", share("g", 10, "41Gi"), None),
    ],
)
def test_what_the_node_does_not_have_is_not_given(
    claims: RealClaims, pods: RealPods, name: str, request_: Object, constraint: Object | None
) -> None:
    constraints = [constraint] if constraint else []
    source = claims.template(name, request_, constraints=constraints)

    pods.create(claiming(name, source, holder("main", WAITS)))

    def refused(status: Object) -> bool:
        return any(
            one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable"
            for one in status.get("conditions", ())
        )

    pods.wait(name, refused, "the scheduler has no place for it")
    assert claims.allocated() == []


@pytest.fixture
def admin_access(claims_node: RealNode) -> Iterator[None]:
    with admin_access_allowed(claims_node.api):
        yield


def test_admin_access_sees_all_of_gpus_that_others_have(
    admin_access: None, claims: RealClaims, pods: RealPods
) -> None:
    """The scheduler counts it as a share all the same (`CmpRequestOverCapacity` asks nothing about
    admin access), so it asks for the least, and gets none of a GPU that has not so much left."""
    shares = claims.template("shares", exactly("g", CLASS, 8, cores=99, memory="39Gi"))
    looks = claims.template("looks", admin("g", CLASS, 8, cores=1, memory="256Mi"))
    pods.create(claiming("shares", shares, holder("main", HOLDS)))
    taken = gpus_seen(pods.printed("shares", "main", "holding 38 GiB"))

    uid = pods.create(claiming("looks", looks, holder("main", WAITS)))

    seen = gpus_seen(pods.printed("looks", "main", "ready"))
    assert all(one.admin for one in allocated(claims.of_pod(uid)))
    assert seen == dict.fromkeys(taken, WHOLE)
    assert len(taken) == 8
    assert claims.accounts().overbooked == []


def test_pods_of_one_claim_have_one_budget(claims: RealClaims, pods: RealPods) -> None:
    """Each alone could have what it wants; the second comes when the first has it."""
    common = claims.claim("common", share("gpu", 40, "4Gi"))
    wants = f"{LOOKS}; cuda-play hold --memory 3GiB --seconds 600"
    pods.create(claiming("first", common, holder("main", wants)))
    pods.printed("first", "main", "holding 3 GiB")

    pods.create(claiming("second", common, holder("main", wants)))

    said = pods.printed("second", "main", "CUDA_ERROR_OUT_OF_MEMORY")
    assert gpus_seen(said) == gpus_seen(pods.log("first", "main"))
    assert [*gpus_seen(said).values()] == [4 * GIB]
    pods.delete("first")
    pods.create(claiming("third", common, holder("main", wants)))
    pods.printed("third", "main", "holding 3 GiB")


def test_requests_that_cannot_be_served_in_one_container_are_refused_by_name(
    claims: RealClaims, pods: RealPods, claims_node: RealNode
) -> None:
    source = claims.template("crossed", *TWO)
    shape = Shape("crossed", TWO, {"both": "a,b", "alone": "b"})

    uid = pods.create(shape.pod(source))

    def said() -> str:
        found = claims_node.api.get(f"{EVENTS}?fieldSelector=involvedObject.uid={uid}")["items"]
        return " ".join(one["message"] for one in found)

    wait_for(lambda: "container both" in said(), "its events say which container")
