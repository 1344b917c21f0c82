"""`gpumanager top`: what it prints, what the keys do, and what happens while the agent is away."""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from textual.color import Color
from textual.pilot import Pilot

from gpumanager.cli import run
from gpumanager.cli.node_agents import list_nodes
from gpumanager.cli.output.top_app import Sampled, TopApp
from gpumanager.cli.output.top_rows import RowsView
from gpumanager.cli.top import list_cluster_nodes
from gpumanager.view.figures import ASCII, UNICODE
from gpumanager.view.node import NodeView, Seen
from tests.view.test_nodes_of_a_cluster import NODE as CLUSTER_NODE
from tests.view.view_world import BUSY, container, device, document, seen, snapshot

NODE = seen(*BUSY, gpus=3)
GROUND = Color.parse("ansi_default")


@contextlib.contextmanager
def serving(status: int = 200, body: str = "") -> Iterator[str]:
    """Something that answers everything alike; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def agent() -> Iterator[str]:
    with serving(body=json.dumps(document(snapshot(BUSY, gpus=3)))) as url:
        yield url


@pytest.fixture
def nobody() -> Iterator[str]:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}"


# Printed.


@pytest.mark.parametrize("width", [60, 80, 120])
def test_once_prints_an_aligned_table_and_leaves(
    width: int, agent: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    assert run(["top", "--once", "--agent", agent]) == 0

    summary, *table = capsys.readouterr().out.splitlines()
    assert summary.startswith("node-a · 3 GPUs, 1 free · 150 of 300 % granted"[:width])
    assert len({len(one) for one in table}) == 1
    assert len(table[0]) <= width
    assert [one for one in table if "web/answers" in one and "41.2/20%" in one and "≤60" in one]


def test_where_there_is_no_terminal_it_prints_once_and_without_escapes(
    agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--ascii", "--agent", agent]) == 0

    printed = capsys.readouterr().out
    assert "team/train-0:main" in printed
    assert printed.isascii()
    assert "\x1b" not in printed


def test_rows_are_printed_in_the_order_asked_for(
    agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["top", "--once", "--sort", "share", "--agent", agent])

    printed = capsys.readouterr().out
    assert printed.index("web/answers") < printed.index("team/train-0")


def test_a_node_that_nobody_uses_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(body=json.dumps(document(snapshot()))) as url:
        run(["top", "--once", "--agent", url])

    assert "No container has a GPU here." in capsys.readouterr().out


def test_json_has_a_record_for_each_node(agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--json", "--agent", agent, "--agent", agent + "/"]) == 0

    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["agent"], node["node"], len(node["gpus"])) == (agent, "node-a", 3)


def test_an_agent_that_is_not_there_is_one_sentence_with_what_to_do(
    nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--agent", nobody]) == 1

    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{nobody}: cannot ask the agent: Connection refused" in error
    assert "--agent http://HOST:PORT" in error


def test_of_several_nodes_those_that_answer_are_shown_and_the_rest_is_told(
    agent: str, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--once", "--agent", agent, "--agent", nobody]) == 1

    shown = capsys.readouterr()
    assert "team/train-0" in shown.out
    assert "away: Connection refused" in shown.out
    assert "cannot ask the agent" in shown.err
    assert run(["top", "--json", "--agent", agent, "--agent", nobody]) == 1
    assert "error" in json.loads(capsys.readouterr().out)["nodes"][1]


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, "# HELP up x\nup 1\n", "not as this version's node agent does"),
        (200, "{}", "not as this version's node agent does"),
        (404, "", "has no /api/node"),
        (503, "the first look is not over yet\n", "answered 503: the first look"),
    ],
)
def test_another_server_is_said_to_be_no_agent(
    status: int, body: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(status, body) as url:
        assert run(["top", "--once", "--agent", url]) == 1

    assert why in capsys.readouterr().err


@pytest.mark.parametrize("url", ["localhost:5678", "ftp://x", "http://", "http://x:99999999"])
def test_what_is_no_url_is_refused_before_anybody_is_asked(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--agent", url]) == 2

    assert "write http://HOST:PORT" in capsys.readouterr().err


# Alive.


def shown(app: TopApp) -> list[str]:
    """The lines of the list, as they are on the screen."""
    view = app.screen_stack[0].query_one(RowsView)
    lines = [view.render_line(y).text.rstrip() for y in range(view.size.height)]
    return [one for one in lines if one]


def status(app: TopApp) -> str:
    return str(app.screen_stack[0].query_one("#status").render())


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


@pytest.mark.parametrize("size", [(60, 12), (80, 24), (120, 30), (30, 6)])
async def test_the_list_fits_the_screen_whatever_its_size(size: tuple[int, int]) -> None:
    app = TopApp([NODE], UNICODE)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        lines = shown(app)

    assert len(lines) == min(6, size[1] - 4)
    assert max(map(len, lines)) <= size[0]


async def test_keys_sort_filter_fold_and_hide() -> None:
    app = TopApp([NODE], ASCII)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "P")
        assert "web/answers" in shown(app)[1]
        await press(pilot, "I")
        assert "A100" in shown(app)[1]
        await press(pilot, "N", "e")
        assert len(shown(app)) == 5
        await press(pilot, "space")
        assert len(shown(app)) == 3
        await press(pilot, "space", "t")
        assert [one.split()[1].split("/")[0] for one in shown(app)] == ["team", "web", "lab"]
        await press(pilot, "t", "slash", *"whole")
        assert len(shown(app)) == 2
        await press(pilot, "enter")
        assert "only 'whole'" in status(app)
        await press(pilot, "escape")
        assert len(shown(app)) == 5


async def test_the_cursor_stays_with_its_container_when_others_come() -> None:
    app = TopApp([NODE], UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "down", "down")
        view = app.query_one(RowsView)
        assert view.row
        assert view.row.key.endswith("web/answers:main")

        app.show([seen(*BUSY, container("a/new", device()), gpus=3)])
        await pilot.pause()
        assert view.row.key.endswith("web/answers:main")
        assert view.position == 3

        app.show([seen(gpus=3)])
        await pilot.pause()
        assert view.row.gpu
        assert view.row.container is None


async def test_a_long_list_scrolls_with_the_cursor() -> None:
    many = [container(f"a/p{number:03}", device(granted=1)) for number in range(60)]
    app = TopApp([seen(*many, gpus=1)], UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "end")
        assert "p059" in shown(app)[-1]
        await press(pilot, "pageup", "home")
        assert "A100" in shown(app)[0]


async def test_enter_tells_all_that_is_known_of_a_row() -> None:
    app = TopApp([NODE], UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "down", "enter")
        told = str(app.query_one("#details").render())
        await press(pilot, "up")
        of_the_gpu = str(app.query_one("#details").render())

    assert "team/train-0:main on GPU 0" in told
    assert "3.9 GiB of 4 GiB" in told
    assert "memory refused 3 times" in told
    assert "granted 5 GiB" in of_the_gpu


async def test_while_the_agent_is_away_the_last_picture_stays_and_it_is_said() -> None:
    app = TopApp([NODE], UNICODE, clock=lambda: 42.0)
    away = Seen(NODE.agent, NODE.node, 30.0, "Connection refused")
    async with app.run_test(size=(100, 24)) as pilot:
        before = shown(app)
        app.post_message(Sampled([away]))
        await pilot.pause()
        assert shown(app) == before
        assert "node-a away, last seen 12s ago: Connection refused; trying again" in status(app)
        strip = app.query_one(RowsView).render_line(1)
        assert all(one.style and one.style.dim for one in strip if one.text.strip())

        app.post_message(Sampled([NODE]))
        await pilot.pause()
        assert "away" not in status(app)


async def test_pictures_that_come_while_help_is_read_or_the_picture_is_held_do_no_harm() -> None:
    app = TopApp([NODE], UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "h")
        app.post_message(Sampled([seen(gpus=1)]))
        await pilot.pause()
        await press(pilot, "escape")
        assert len(shown(app)) == 1
        await press(pilot, "z")
        app.post_message(Sampled([NODE]))
        await pilot.pause()
        assert len(shown(app)) == 1
        assert "held" in status(app)


async def test_help_names_every_key() -> None:
    app = TopApp([NODE], ASCII)
    async with app.run_test(size=(80, 30)) as pilot:
        await press(pilot, "question_mark")
        text = str(app.screen.query_one("Static").render())
        await press(pilot, "q")
        assert len(app.screen_stack) == 1

    assert text.isascii()
    assert [word for word in ("fold", "sort", "CEIL", "THR", "REF") if word not in text] == []
    assert max(map(len, text.splitlines())) <= 76


async def test_without_colours_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = TopApp([NODE], UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        view = app.query_one(RowsView)
        drawn = [view.render_line(y) for y in range(4)]
        sent = [strip.apply_filter(app._filters[-1], GROUND) for strip in drawn]
        styles = [one.style for strip in sent for one in strip]

    assert {style.color.name for style in styles if style and style.color} <= {"default"}


async def test_q_leaves() -> None:
    app = TopApp([NODE], UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")

    assert app.return_code == 0


# Asked again and again.


def test_the_last_picture_is_kept_while_an_agent_does_not_answer() -> None:
    assert NODE.node

    def silent(_url: str) -> NodeView:
        raise OSError("gone")

    (away,) = list_nodes([NODE.agent], [NODE], lambda: 5.0, silent)
    (back,) = list_nodes([NODE.agent], [away], lambda: 9.0, lambda _url: NODE.node)  # type: ignore[arg-type, return-value]

    assert (away.node, away.at, away.trouble) == (NODE.node, 0.0, "gone")
    assert (back.node, back.at, back.trouble) == (NODE.node, 9.0, "")


# The keys of a long list; ScrollView has keys of its own.


def crowd(count: int) -> Seen:
    return seen(*(container(f"a/p{number:03}", device(granted=1)) for number in range(count)))


@pytest.mark.parametrize("rows", [3, 40], ids=["all-fits", "longer-than-the-screen"])
async def test_every_key_that_moves_moves_the_cursor(rows: int) -> None:
    app = TopApp([crowd(rows)], UNICODE)
    async with app.run_test(size=(80, 20)) as pilot:
        view = app.query_one(RowsView)
        last = rows + 1  # two GPUs have a row too
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
            await press(pilot, key)
            assert view.position == place, key
            row = view.row
            assert row
            top = view.scroll_offset.y
            assert top <= view.position < top + view.page(), key
            reverse = [one for one in view.render_line(view.position - top) if one.style]
            assert any(one.style and one.style.reverse for one in reverse), key


async def test_enter_shows_the_row_of_the_cursor_in_a_long_list() -> None:
    app = TopApp([crowd(40)], UNICODE)
    async with app.run_test(size=(80, 20)) as pilot:
        await press(pilot, "end", "up", "up", "enter")
        told = str(app.query_one("#details").render())
        view = app.query_one(RowsView)
        top = view.scroll_offset.y
        assert top <= view.position < top + view.page()  # though the list became shorter

    assert "a/p038" in told


async def test_a_filter_that_matches_nothing_is_said() -> None:
    app = TopApp([NODE], UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "slash", *"nowhere")
        assert shown(app) == ["Nothing here matches 'nowhere'. Esc shows all."]
        await press(pilot, "escape")
        assert len(shown(app)) == 6


async def test_throttling_is_shown_as_a_rate_once_there_are_two_looks() -> None:
    def at(seconds: float, throttled: float) -> Seen:
        view = container("a/p", device(throttled_ns=int(throttled * 1e9)))
        return replace(seen(view), at=seconds)

    app = TopApp([at(1, 60)], UNICODE)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "1m" in shown(app)[1]
        app.show([at(2, 60.71)])
        await pilot.pause()
        assert "71%" in shown(app)[1]


@pytest.mark.parametrize("width", [90, 120])
async def test_temperature_and_power_are_shown(width: int) -> None:
    app = TopApp([NODE], UNICODE)
    async with app.run_test(size=(width, 24)) as pilot:
        await pilot.pause()
        line = shown(app)[0]

    assert "54°C" in line
    assert "212W" in line
    assert line.endswith("54°C  212W") == (width == 120)


def test_a_cluster_is_shown_as_its_extender_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(body=json.dumps({"version": "1.2.3", "nodes": [CLUSTER_NODE], "pages": 1})) as url:
        assert run(["top", "--cluster", "--once", "--extender", url]) == 0

    printed = capsys.readouterr().out
    assert "node-a · 2 GPUs, 0 free · 120 of 200 % granted · 2.0/32G granted" in printed
    assert "closed" in printed
    assert "a/one" in printed


@pytest.mark.parametrize(("status", "body"), [(200, "{}"), (200, "x"), (503, "")])
def test_what_is_no_extender_is_one_sentence(
    status: int, body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(status, body) as url:
        assert run(["top", "--cluster", "--once", "--extender", url]) == 1

    assert capsys.readouterr().err.count("\n") == 1


def test_the_last_picture_of_a_cluster_is_kept_while_its_extender_is_away(nobody: str) -> None:
    before = [replace(NODE, at=3.0)]

    (away,) = list_cluster_nodes(nobody, None, before)

    assert (away.node, away.at) == (NODE.node, 3.0)
    assert "cannot ask the extender: Connection refused" in away.trouble
