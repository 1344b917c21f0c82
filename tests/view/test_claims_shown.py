"""Grants of claims as people see them: one line for all who share one, and who only looks."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from gpumanager.cli.tree import leaf, shares_by_gpu, tree
from gpumanager.grants.grant import Claimant, ClaimedDevice, ClaimSource, Grant, Share, State
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import AllocationID, PodUID
from gpumanager.monitor.events import Events
from gpumanager.monitor.look import Busy, MeterTotals, container_view, gpu_views
from gpumanager.monitor.snapshot import ContainerSnapshot
from gpumanager.view.drawing import details, layout, line
from gpumanager.view.figures import ASCII
from gpumanager.view.listing import Wish, rows
from gpumanager.view.node import NodeView, granted
from gpumanager.view.story import claim_story, story
from tests.view.view_world import MACHINE, container, device, gpu, node_of, seen

USERS = tuple(
    Claimant(PodUID(f"uid-{pod}"), "team", pod, name)
    for pod, name in (("train", "main"), ("train", "side"), ("eval", "main"))
)
UUIDS = tuple(gpu(index).uuid for index in range(2))


def claimed(
    *shares: Share, admin: bool = False, requests: tuple[str, ...] = ("gpu",), name: str = "budget"
) -> Grant:
    source = ClaimSource(
        "uid", "team", name, tuple(ClaimedDevice("gpu-x", one) for one in requests), admin
    )
    return Grant(
        AllocationID(name),
        source,
        dict(zip(UUIDS, shares, strict=False)),
        state=State.CONFIRMED,
        pod=USERS[0],
        time=1.0,
    )


def view(grant: Grant, users: tuple[Claimant, ...] = USERS) -> ContainerSnapshot | None:
    return container_view(MACHINE, grant, MeterTotals({}, {}, Busy()), users)


def placement(*grants: Grant, events: Events | None = None) -> NodeView:
    return node_of(*grants, users=USERS, events=events)


def shown(users: tuple[Claimant, ...] = USERS) -> ContainerSnapshot:
    found = view(claimed(Share(40, 16)), users)
    assert found is not None
    return replace(found, devices=(device(0, granted=40),))


def test_containers_that_share_a_claim_are_one_row_with_the_names_of_all() -> None:
    node = seen(shown())
    (row,) = (one for one in rows([node], Wish()) if one.container)

    assert row.container is not None
    assert row.container.name == "team/train:main,side eval:main"
    assert row.container.short == "team/train +1"
    assert line(row, layout(120), ASCII).plain.count("team/train") == 1
    assert "claim     budget (request gpu) for all of them together" in details(row)


def test_a_row_is_found_by_its_claim_and_as_json_names_all_users() -> None:
    node = seen(shown(), container("lab/other"))

    assert len([one for one in rows([node], Wish(needle="budget")) if one.container]) == 1
    (shared,) = (one for one in node.as_json()["containers"] if one["users"])
    assert shared["claim"] == "budget"
    assert [(one["pod"], one["container"]) for one in shared["users"]] == [
        (one.name, one.container) for one in USERS
    ]


def test_admin_access_is_no_container_and_leaves_a_gpu_free() -> None:
    admin = claimed(Share(0, 0), admin=True)

    assert view(admin) is None
    first, _ = gpu_views(Ledger(MACHINE), [admin], {}, {})
    assert (first.containers, first.cores) == (0, 0)
    told = placement(admin)
    (held,) = shares_by_gpu(told)[UUIDS[0]]
    assert leaf(MACHINE.gpus[0], [held]).endswith(", free")
    assert granted(*held) == "admin access"
    assert "That is admin access" in " ".join(story("team/train", told))


def test_a_claim_of_two_gpus_is_told_with_the_amounts_of_each() -> None:
    told = placement(claimed(Share(20, 4), Share(100, 160)))
    held = shares_by_gpu(told)

    assert [granted(*held[uuid][0]) for uuid in UUIDS] == ["20 % and 1 GiB", "one of 2 whole GPUs"]
    assert leaf(MACHINE.gpus[0], held[UUIDS[0]]).endswith("20 % granted")
    console = Console(file=StringIO(), width=100)
    console.print(tree("node-a", told.topology, held))
    assert "20 % and 1 GiB, claim budget (gpu)" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "20 % and 1 GiB of GPU 0 (A100-SXM4-40GB), all of GPU 1" in " ".join(
        story("team/train", told)
    )


def test_explain_tells_each_pod_of_a_claim_with_whom_it_shares() -> None:
    told = placement(claimed(Share(40, 16)))

    train, evaluation = (" ".join(story(f"team/{pod}", told)) for pod in ("train", "eval"))
    assert "Containers main and side have together 40 % and 4 GiB of GPU 0" in train
    assert "The same limits hold for eval:main too" in train
    assert "Container main has 40 % and 4 GiB" in evaluation
    assert "The same limits hold for train:main,side too" in evaluation
    assert story("other/train", told) == ()


def test_explain_of_a_claim_tells_what_is_prepared_and_what_was_refused() -> None:
    events = Events(clock=lambda: 3.0)
    events.claim_refused(USERS[0], "team/other", "not free")
    told = placement(claimed(Share(40, 16)), events=events)

    (prepared,) = claim_story("team/budget", told)
    assert prepared.startswith("Request gpu is prepared on node node-a since ")
    assert prepared.endswith("40 % and 4 GiB of GPU 0 (A100-SXM4-40GB), for "
                             "train:main,side eval:main.")  # fmt: skip
    (refused,) = claim_story("team/other", told)
    assert refused.startswith("Claim other was not prepared at ")
    assert refused in story("team/train", told)
