"""User objects and conditional nodes of graphs on the simulated driver, through cuda-bindings."""

from tests.native.sim.graph.graph_scripts import told
from tests.native.sim_box import SimBox

OBJECTS = """
gone = []
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(gone.append)
destroy = ctypes.cast(call, ctypes.c_void_p).value
def new(name, references=1):
    return done(cu.cuUserObjectCreate(name, cu.CUhostFn(destroy), references, 1))
"""


def test_a_destructor_runs_when_the_last_reference_goes(box: SimBox) -> None:
    out = told(
        box,
        OBJECTS
        + """
one = new(7, 2)
done(cu.cuUserObjectRetain(one, 3))
done(cu.cuUserObjectRelease(one, 4))
print(gone)
print(refused(cu.cuUserObjectRelease(one, 2)))
done(cu.cuUserObjectRelease(one, 1))
print(gone)
print(refused(cu.cuUserObjectCreate(7, cu.CUhostFn(destroy), 1, 0)))
print(refused(cu.cuUserObjectCreate(7, cu.CUhostFn(destroy), 0, 1)))
""",
    )

    invalid = "CUDA_ERROR_INVALID_VALUE"
    assert out == ["[]", invalid, "[7]", invalid, invalid]


def test_a_graph_and_each_copy_of_it_hold_references(box: SimBox) -> None:
    out = told(
        box,
        OBJECTS
        + """
one, g = new(7), graph()
done(cu.cuGraphRetainUserObject(g, one, 1, 1))  # moved: the caller has none any more
clone = done(cu.cuGraphClone(g))
executable = ready(g)
parent = graph()
done(cu.cuGraphAddChildGraphNode(parent, [], 0, g))
for last in (cu.cuGraphDestroy(g), cu.cuGraphDestroy(clone), cu.cuGraphDestroy(parent)):
    done(last)
print(gone)
done(cu.cuGraphExecDestroy(executable))
print(gone)
""",
    )

    assert out == ["[]", "[7]"]


def test_a_graph_gives_back_no_more_than_it_holds(box: SimBox) -> None:
    out = told(
        box,
        OBJECTS
        + """
one, other, g = new(7), new(8), graph()
done(cu.cuGraphRetainUserObject(g, one, 2, 0))
print(refused(cu.cuGraphReleaseUserObject(g, other, 1)))
print(refused(cu.cuGraphReleaseUserObject(g, one, 3)))
done(cu.cuGraphReleaseUserObject(g, one, 2))
done(cu.cuUserObjectRelease(one, 1))
print(gone)
done(cu.cuGraphDestroy(g))
print(gone)
""",
    )

    assert out == ["CUDA_ERROR_INVALID_VALUE"] * 2 + ["[7]", "[7]"]


def test_an_update_takes_the_references_of_the_new_graph(box: SimBox) -> None:
    out = told(
        box,
        OBJECTS
        + """
old, fresh = graph(), graph()
for number, g in ((1, old), (2, fresh)):
    done(cu.cuGraphRetainUserObject(g, new(number), 1, 1))
executable = ready(old)
done(cu.cuGraphDestroy(old))
print(gone)
done(cu.cuGraphExecUpdate(executable, fresh))
done(cu.cuGraphDestroy(fresh))
print(gone)
done(cu.cuGraphExecDestroy(executable))
print(gone)
""",
    )

    assert out == ["[]", "[1]", "[1, 2]"]


CONDITIONAL = """
def conditional(into, kind, size, value, flags=1):
    params = cu.CUgraphNodeParams()
    params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    handle = done(cu.cuGraphConditionalHandleCreate(into, context, value, flags))
    params.conditional.handle = handle
    params.conditional.type = getattr(
        cu.CUgraphConditionalNodeType, "CU_GRAPH_COND_TYPE_" + kind)
    params.conditional.size = size
    params.conditional.ctx = context
    code, node = cu.cuGraphAddNode(into, None, None, 0, params)
    if code != cu.CUresult.CUDA_SUCCESS:
        return code, None
    return node, list(params.conditional.phGraph_out)
context = done(cu.cuCtxGetCurrent())
def run_all(*graphs):
    for g in graphs:
        launch(ready(g))
    done(cu.cuStreamSynchronize(stream))
"""


def microseconds(box: SimBox) -> float:
    return box.gpus.tenants()[0].devices[box.uuid].busy_ns / 1000


def test_the_value_at_launch_chooses_the_body(box: SimBox) -> None:
    told(
        box,
        CONDITIONAL
        + """
def chosen(kind, size, value, flags=1):
    g = graph()
    _, bodies = conditional(g, kind, size, value, flags)
    assert len(bodies) == size
    for index, body in enumerate(bodies):
        kernel(body, [], 10 ** (index + 1))
    run_all(g)
chosen("IF", 1, 1)         # 10
chosen("IF", 1, 0)
chosen("IF", 2, 0)         # 100
chosen("IF", 1, 1, 0)      # no default: 0
chosen("WHILE", 1, 5)      # 10: a loop ends after one turn
chosen("SWITCH", 3, 2)     # 1000
chosen("SWITCH", 3, 3)
""",
    )

    assert microseconds(box) == 10 + 100 + 10 + 1000


def test_bodies_nest_and_are_copied_with_their_graph(box: SimBox) -> None:
    out = told(
        box,
        CONDITIONAL
        + """
g = graph()
node, (body,) = conditional(g, "IF", 1, 1)
_, (inner,) = conditional(body, "IF", 1, 1)
kernel(inner, [], 30)
clone = done(cu.cuGraphClone(g))
kernel(inner, [], 400)
print(kinds(g))
run_all(clone)   # 30: made before the second kernel
run_all(g)       # 430
done(cu.cuGraphDestroyNode(node))
run_all(g)
""",
    )

    assert out == ["['CONDITIONAL']"]
    assert microseconds(box) == 30 + 430


def test_what_a_body_may_not_have_is_refused(box: SimBox) -> None:
    out = told(
        box,
        CONDITIONAL
        + """
for kind, size in (("IF", 3), ("WHILE", 2), ("SWITCH", 0)):
    print(conditional(graph(), kind, size, 1)[0].name)
g = graph()
_, (body,) = conditional(g, "IF", 1, 1)
alloc(body, [], MIB)
print(refused(cu.cuGraphInstantiate(g, 0)))
""",
    )

    assert out == ["CUDA_ERROR_INVALID_VALUE"] * 4


def test_a_capture_takes_a_conditional_node_in_and_its_body_is_captured(box: SimBox) -> None:
    out = told(
        box,
        CONDITIONAL
        + """
inside = done(cu.cuStreamCreate(1))
capture()
run(10)
status, _, g, needs, *_ = done(cu.cuStreamGetCaptureInfo(stream))
params = cu.CUgraphNodeParams()
params.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
params.conditional.handle = done(cu.cuGraphConditionalHandleCreate(g, context, 1, 1))
params.conditional.type = cu.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
params.conditional.size, params.conditional.ctx = 1, context
node = done(cu.cuGraphAddNode(g, needs, None, len(needs), params))
SET = cu.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
done(cu.cuStreamUpdateCaptureDependencies(stream, [node], None, 1, int(SET)) + (None,))
done(cu.cuStreamBeginCaptureToGraph(
    inside, params.conditional.phGraph_out[0], None, None, 0, THREAD_LOCAL) + (None,))
run(200, inside)
done(cu.cuStreamEndCapture(inside))
run(3000)
made = captured()
print(kinds(made))
run_all(made)
""".replace("THREAD_LOCAL", "cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL"),
    )

    assert out == ["['KERNEL', 'CONDITIONAL', 'KERNEL']"]
    assert microseconds(box) == 10 + 200 + 3000
