"""User objects and conditional nodes of graphs on the simulated driver, through cuda-bindings."""

import ctypes
from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}

gone: list[int] = []
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(gone.append)
destroy = cu.CUhostFn(ctypes.cast(call, ctypes.c_void_p).value)


def new(name: int, references: int = 1) -> Any:
    return done(cu.cuUserObjectCreate(name, destroy, references, 1))


def test_a_destructor_runs_when_the_last_reference_goes() -> None:
    one = new(7, 2)
    done(cu.cuUserObjectRetain(one, 3))
    done(cu.cuUserObjectRelease(one, 4))
    assert gone == []
    assert refused(cu.cuUserObjectRelease(one, 2)) == INVALID
    done(cu.cuUserObjectRelease(one, 1))
    assert gone == [7]

    for references, flags in ((1, 0), (0, 1)):
        assert refused(cu.cuUserObjectCreate(7, destroy, references, flags)) == INVALID


def test_a_graph_and_each_copy_of_it_hold_references() -> None:
    one, g = new(7), graph()
    done(cu.cuGraphRetainUserObject(g, one, 1, 1))  # moved: the caller has none any more
    clone, executable, parent = done(cu.cuGraphClone(g)), ready(g), graph()
    done(cu.cuGraphAddChildGraphNode(parent, [], 0, g))
    for last in (g, clone, parent):
        done(cu.cuGraphDestroy(last))
    assert gone == []
    done(cu.cuGraphExecDestroy(executable))
    assert gone == [7]


def test_a_graph_gives_back_no_more_than_it_holds() -> None:
    one, other, g = new(7), new(8), graph()
    done(cu.cuGraphRetainUserObject(g, one, 2, 0))
    assert refused(cu.cuGraphReleaseUserObject(g, other, 1)) == INVALID
    assert refused(cu.cuGraphReleaseUserObject(g, one, 3)) == INVALID
    done(cu.cuGraphReleaseUserObject(g, one, 2))
    done(cu.cuUserObjectRelease(one, 1))
    assert gone == [7]
    done(cu.cuGraphDestroy(g))
    assert gone == [7]


def test_an_update_takes_the_references_of_the_new_graph() -> None:
    old, fresh = graph(), graph()
    for number, g in ((1, old), (2, fresh)):
        done(cu.cuGraphRetainUserObject(g, new(number), 1, 1))
    executable = ready(old)
    done(cu.cuGraphDestroy(old))
    assert gone == []
    done(cu.cuGraphExecUpdate(executable, fresh))
    done(cu.cuGraphDestroy(fresh))
    assert gone == [1]
    done(cu.cuGraphExecDestroy(executable))
    assert gone == [1, 2]


context = done(cu.cuCtxGetCurrent())


def asked(into: Any, kind: str, size: int, value: int, flags: int = 1) -> Any:
    """Parameters of a conditional node."""
    params = cu.CUgraphNodeParams()
    params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    one = params.conditional
    one.handle = done(cu.cuGraphConditionalHandleCreate(into, context, value, flags))
    one.type = getattr(cu.CUgraphConditionalNodeType, "CU_GRAPH_COND_TYPE_" + kind)
    one.size, one.ctx = size, context
    return params


def conditional(into: Any, *wanted: Any) -> tuple[Any, Sequence[Any]]:
    """The node, and its bodies."""
    params = asked(into, *wanted)
    node = done(cu.cuGraphAddNode(into, None, None, 0, params))
    return node, list(params.conditional.phGraph_out)


def microseconds(box: SimBox, *graphs: Any) -> float:
    """What the GPU has been busy for once these have run, too."""
    for g in graphs:
        launch(ready(g))
    sync()
    return box.account().busy_ns / 1000


def test_the_value_at_launch_chooses_the_body(box: SimBox) -> None:
    busy = 0
    for wanted, more in (
        (("IF", 1, 1), 10),
        (("IF", 1, 0), 0),
        (("IF", 2, 0), 100),
        (("IF", 1, 1, 0), 0),  # no default: 0
        (("WHILE", 1, 5), 10),  # a loop ends after one turn
        (("SWITCH", 3, 2), 1000),
        (("SWITCH", 3, 3), 0),
    ):
        g = graph()
        _, bodies = conditional(g, *wanted)
        assert len(bodies) == wanted[1]
        for index, body in enumerate(bodies):
            kernel(body, [], 10 ** (index + 1))
        busy += more
        assert microseconds(box, g) == busy, wanted


def test_bodies_nest_and_are_copied_with_their_graph(box: SimBox) -> None:
    g = graph()
    node, (body,) = conditional(g, "IF", 1, 1)
    _, (inner,) = conditional(body, "IF", 1, 1)
    kernel(inner, [], 30)
    clone = done(cu.cuGraphClone(g))
    kernel(inner, [], 400)
    assert kinds(g) == ["CONDITIONAL"]
    assert microseconds(box, clone) == 30  # made before the second kernel
    assert microseconds(box, g) == 30 + 430
    done(cu.cuGraphDestroyNode(node))
    assert microseconds(box, g) == 30 + 430


def test_what_a_body_may_not_have_is_refused() -> None:
    for kind, size in (("IF", 3), ("WHILE", 2), ("SWITCH", 0)):
        into = graph()
        assert (
            refused(cu.cuGraphAddNode(into, None, None, 0, asked(into, kind, size, 1))) == INVALID
        )
    g = graph()
    _, (body,) = conditional(g, "IF", 1, 1)
    alloc(body, [], MIB)
    assert refused(cu.cuGraphInstantiate(g, 0)) == INVALID


def test_a_capture_takes_a_conditional_node_in_and_its_body_is_captured(box: SimBox) -> None:
    inside = done(cu.cuStreamCreate(1))
    capture()
    run(10)
    _, _, g, needs, *_ = done(cu.cuStreamGetCaptureInfo(stream))
    params = asked(g, "WHILE", 1, 1)
    node = done(cu.cuGraphAddNode(g, needs, None, len(needs), params))
    done(cu.cuStreamUpdateCaptureDependencies(stream, [node], None, 1, 1))  # these alone
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    body = params.conditional.phGraph_out[0]
    done(cu.cuStreamBeginCaptureToGraph(inside, body, None, None, 0, mode))
    run(200, inside)
    done(cu.cuStreamEndCapture(inside))
    run(3000)
    made = captured()

    assert kinds(made) == ["KERNEL", "CONDITIONAL", "KERNEL"]
    assert microseconds(box, made) == 10 + 200 + 3000
