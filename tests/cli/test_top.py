"""`gpumanager top`: what it prints, what the keys do, and what happens while the agent is away."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from textual.color import Color
from textual.pilot import Pilot

from gpumanager.cli import run
from gpumanager.cli.node_agents import list_nodes
from gpumanager.cli.output.top_app import Sampled, TopApp
from gpumanager.cli.output.top_rows import RowsView
from gpumanager.cli.top import list_cluster_nodes
from gpumanager.view.figures import ASCII, UNICODE, Glyphs
from gpumanager.view.node import NodeView, Seen
from tests.cli.commands import AGENT_PAGE, UNREACHABLE, answering
from tests.view.view_world import BUSY, CLUSTER_NODE, container, device, document, seen, snapshot

NODE = seen(*BUSY, gpus=3)
GROUND = Color.parse("ansi_default")


@pytest.fixture
def agent() -> Iterator[str]:
    with answering(AGENT_PAGE) as url:
        yield url


# Printed.


@pytest.mark.parametrize("width", [60, 120])
def test_once_prints_an_aligned_table_and_leaves(
    width: int, agent: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    assert run(["top", "--once", "--sort", "share", "--agent", agent]) == 0

    summary, *table = capsys.readouterr().out.splitlines()
    assert summary.startswith("node-a · 3 GPUs, 1 free · 150 of 300 % granted"[:width])
    assert len({len(one) for one in table}) == 1
    assert len(table[0]) <= width
    rows = [one for one in table if "team/train-0" in one or "web/answers" in one]
    assert [word for word in ("web/answers", "41.2/20%", "≤60") if word not in rows[0]] == []


def test_where_there_is_no_terminal_it_prints_once_and_without_escapes(
    agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--ascii", "--agent", agent]) == 0

    printed = capsys.readouterr().out
    assert "team/train-0:main" in printed
    assert printed.isascii()
    assert "\x1b" not in printed


def test_a_node_that_nobody_uses_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(json.dumps(document(snapshot()))) as url:
        run(["top", "--once", "--agent", url])

    assert "No container has a GPU here." in capsys.readouterr().out


def test_json_has_a_record_for_each_node(agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--json", "--agent", agent, "--agent", agent + "/"]) == 0

    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["agent"], node["node"], len(node["gpus"])) == (agent, "node-a", 3)


def test_of_several_nodes_those_that_answer_are_shown_and_the_rest_is_told(
    agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--once", "--agent", agent, "--agent", UNREACHABLE]) == 1

    shown = capsys.readouterr()
    assert "team/train-0" in shown.out
    assert "away: Connection refused" in shown.out
    assert "cannot ask the agent" in shown.err
    assert "--agent http://HOST:PORT" in shown.err
    assert run(["top", "--json", "--agent", agent, "--agent", UNREACHABLE]) == 1
    assert "error" in json.loads(capsys.readouterr().out)["nodes"][1]


@pytest.mark.parametrize(
    ("words", "status", "body", "why"),
    [
        ("--agent", 200, "# HELP up x\nup 1\n", "not as this version's node agent does"),
        ("--agent", 200, "{}", "not as this version's node agent does"),
        ("--agent", 404, "", "has no /api/node"),
        ("--agent", 503, "the first look is not over yet\n", "answered 503: the first look"),
        ("--cluster --extender", 200, "{}", ""),
        ("--cluster --extender", 200, "x", ""),
        ("--cluster --extender", 503, "", "503"),
    ],
)
def test_another_server_is_said_to_be_no_agent_or_extender_in_one_line(
    words: str, status: int, body: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(body, status) as url:
        assert run(["top", "--once", *words.split(), url]) == 1

    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert why in error


def test_a_cluster_is_shown_as_its_extender_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    page = json.dumps({"version": "1.2.3", "nodes": [CLUSTER_NODE], "pages": 1})
    with answering(page) as url:
        assert run(["top", "--cluster", "--once", "--extender", url]) == 0

    printed = capsys.readouterr().out
    assert "node-a · 2 GPUs, 0 free · 120 of 200 % granted · 2.0/32G granted" in printed
    assert "closed" in printed
    assert "a/one" in printed


# Asked again and again.


def test_the_last_picture_is_kept_while_an_agent_does_not_answer() -> None:
    assert NODE.node

    def silent(_url: str) -> NodeView:
        raise OSError("gone")

    (away,) = list_nodes([NODE.agent], [NODE], lambda: 5.0, silent)
    (back,) = list_nodes([NODE.agent], [away], lambda: 9.0, lambda _url: NODE.node)  # type: ignore[arg-type, return-value]

    assert (away.node, away.at, away.trouble) == (NODE.node, 0.0, "gone")
    assert (back.node, back.at, back.trouble) == (NODE.node, 9.0, "")


def test_the_last_picture_of_a_cluster_is_kept_while_its_extender_is_away() -> None:
    before = [replace(NODE, at=3.0)]

    (away,) = list_cluster_nodes(UNREACHABLE, None, before)

    assert (away.node, away.at) == (NODE.node, 3.0)
    assert "cannot ask the extender: Connection refused" in away.trouble


# Alive.


class Screen:
    """The application while it runs."""

    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app, self._pilot = app, pilot

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def tell(self, *nodes: Seen) -> None:
        """As the thread does that asks the agents."""
        self.app.post_message(Sampled(list(nodes)))
        await self._pilot.pause()

    @property
    def view(self) -> RowsView:
        return self.app.screen_stack[0].query_one(RowsView)

    @property
    def lines(self) -> list[str]:
        """Of the list, as they are on the screen."""
        drawn = (self.view.render_line(y) for y in range(self.view.size.height))
        return [text for one in drawn if (text := one.text.rstrip())]

    def text(self, selector: str) -> str:
        return str(self.app.screen_stack[0].query_one(selector).render())


@asynccontextmanager
async def screen(
    nodes: Sequence[Seen] = (NODE,),
    size: tuple[int, int] = (80, 24),
    glyphs: Glyphs = UNICODE,
    now: float = 0.0,
) -> AsyncIterator[Screen]:
    app = TopApp(list(nodes), glyphs, clock=lambda: now)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Screen(app, pilot)


def crowd(count: int) -> Seen:
    return seen(*(container(f"a/p{number:03}", device(granted=1)) for number in range(count)))


@pytest.mark.parametrize("size", [(60, 12), (90, 24), (120, 30), (30, 6)])
async def test_the_list_fits_the_screen_whatever_its_size(size: tuple[int, int]) -> None:
    async with screen(size=size) as shown:
        lines = shown.lines

    assert len(lines) == min(6, size[1] - 4)
    assert max(map(len, lines)) <= size[0]
    assert lines[0].endswith("54°C  212W") == (size[0] == 120)
    assert ("54°C" in lines[0] and "212W" in lines[0]) == (size[0] >= 90)


async def test_keys_sort_filter_fold_and_hide() -> None:
    async with screen(glyphs=ASCII) as shown:
        await shown.press("P")
        assert "web/answers" in shown.lines[1]
        await shown.press("I")
        assert "A100" in shown.lines[1]
        await shown.press("N", "e")
        assert len(shown.lines) == 5
        await shown.press("space")
        assert len(shown.lines) == 3
        await shown.press("space", "t")
        assert [one.split()[1].split("/")[0] for one in shown.lines] == ["team", "web", "lab"]
        await shown.press("t", "slash", *"ole")
        assert len(shown.lines) == 2
        await shown.press("enter")
        assert "only 'ole'" in shown.text("#status")
        await shown.press("escape")
        assert len(shown.lines) == 5
        await shown.press("slash", "z")
        assert shown.lines == ["Nothing here matches 'z'. Esc shows all."]


async def test_the_cursor_stays_with_its_container_when_others_come() -> None:
    async with screen() as shown:
        view = shown.view
        await shown.press("down", "down")
        assert view.row
        assert view.row.key.endswith("web/answers:main")

        await shown.tell(seen(*BUSY, container("a/new", device()), gpus=3))
        assert view.row.key.endswith("web/answers:main")
        assert view.position == 3

        await shown.tell(seen(gpus=3))
        assert view.row.gpu
        assert view.row.container is None


@pytest.mark.parametrize("rows", [3, 40], ids=["all fit", "longer than the screen"])
async def test_every_key_that_moves_moves_the_cursor(rows: int) -> None:
    """ScrollView has keys of its own."""
    async with screen([crowd(rows)], size=(80, 20)) as shown:
        view, last = shown.view, rows + 1  # two GPUs have a row too
        for key, place in (
            ("down", 1),
            ("down", 2),
            ("up", 1),
            ("end", last),
            ("home", 0),
            ("pagedown", min(view.page(), last)),
            ("pagedown", min(2 * view.page(), last)),
            ("pageup", max(0, min(2 * view.page(), last) - view.page())),
        ):
            await shown.press(key)
            assert view.position == place, key
            top = view.scroll_offset.y
            assert top <= view.position < top + view.page(), key
            drawn = view.render_line(view.position - top)
            assert any(one.style and one.style.reverse for one in drawn), key


async def test_enter_tells_all_that_is_known_of_the_row_of_the_cursor() -> None:
    async with screen() as shown:
        await shown.press("down", "enter")
        told = shown.text("#details")
        await shown.press("up")
        of_the_gpu = shown.text("#details")
        await shown.tell(crowd(40))
        await shown.press("end", "up", "up")
        top = shown.view.scroll_offset.y
        assert top <= shown.view.position < top + shown.view.page()  # the list became shorter
        assert "a/p038" in shown.text("#details")

    assert "team/train-0:main on GPU 0" in told
    assert "3.9 GiB of 4 GiB" in told
    assert "memory refused 3 times" in told
    assert "granted 5 GiB" in of_the_gpu


async def test_while_the_agent_is_away_the_last_picture_stays_and_it_is_said() -> None:
    async with screen(size=(100, 24), now=42.0) as shown:
        before = shown.lines
        await shown.tell(Seen(NODE.agent, NODE.node, 30.0, "Connection refused"))
        assert shown.lines == before
        said = "node-a away, last seen 12s ago: Connection refused; trying again"
        assert said in shown.text("#status")
        strip = shown.view.render_line(1)
        assert all(one.style and one.style.dim for one in strip if one.text.strip())

        await shown.tell(NODE)
        assert "away" not in shown.text("#status")


async def test_pictures_that_come_while_help_is_read_or_the_picture_is_held_do_no_harm() -> None:
    async with screen() as shown:
        await shown.press("h")
        await shown.tell(seen(gpus=1))
        await shown.press("escape")
        assert len(shown.lines) == 1
        await shown.press("z")
        await shown.tell(NODE)
        assert len(shown.lines) == 1
        assert "held" in shown.text("#status")


async def test_help_names_every_key_and_q_leaves_it_and_then_the_program() -> None:
    async with screen(size=(80, 30), glyphs=ASCII) as shown:
        await shown.press("question_mark")
        text = str(shown.app.screen.query_one("Static").render())
        await shown.press("q")
        assert len(shown.app.screen_stack) == 1
        await shown.press("q")

    assert shown.app.return_code == 0
    assert text.isascii()
    assert [word for word in ("fold", "sort", "CEIL", "THR", "REF") if word not in text] == []
    assert max(map(len, text.splitlines())) <= 76


async def test_without_colours_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with screen() as shown:
        drawn = [shown.view.render_line(y) for y in range(4)]
        sent = [strip.apply_filter(shown.app._filters[-1], GROUND) for strip in drawn]
        styles = [one.style for strip in sent for one in strip]

    assert {style.color.name for style in styles if style and style.color} <= {"default"}


async def test_throttling_is_shown_as_a_rate_once_there_are_two_looks() -> None:
    def at(seconds: float, throttled: float) -> Seen:
        view = container("a/p", device(throttled_ns=int(throttled * 1e9)))
        return replace(seen(view), at=seconds)

    async with screen([at(1, 60)]) as shown:
        assert "1m" in shown.lines[1]
        await shown.tell(at(2, 60.71))
        assert "71%" in shown.lines[1]
