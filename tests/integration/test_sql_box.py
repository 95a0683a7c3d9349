"""The box: what statements return, who waits for what, and that no statement is another one's trouble.

Method: a real box with real processes over a small view; runaways are real ones, a hang is a stopped process, a crash a
kill by id.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import boxed
import commands
import memory
import pytest
import pytest_asyncio
from polling import eventually

from facetline.facets import errors, tokens
from facetline.facets.sql_sandbox import limits
from facetline.facets.sql_sandbox import memory as residence
from facetline.facets.sql_sandbox import sandbox as box_
from facetline.facets.sql_sandbox.sandbox import SqlBox
from facetline.facets.sql_sandbox.snapshots import Made

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNAWAY = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
FOREVER = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"
linux = pytest.mark.skipif(not memory.PAGES, reason="looks into /proc")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[SqlBox, boxed.Source]]:
    """A box for all tests that leave it as it is."""
    async with boxed.boxed(tmp_path_factory.mktemp("box"), refresh_s=0.0) as made:
        yield made


@pytest.fixture
def box(shared: tuple[SqlBox, boxed.Source]) -> SqlBox:
    """The shared box."""
    return shared[0]


async def one(box: SqlBox, text: str, **options: Any) -> Any:
    """Return a statement's only cell."""
    [[cell]] = (await box.run(text, **options))["rows"]
    return cell


async def running(box: SqlBox) -> int:
    """Return the id of the process that runs a statement, as soon as there is one."""
    process = await eventually(lambda: next(iter(box._pool.running), None))
    return process.pid


# What comes back


async def test_a_reply_is_as_the_design_shows_it(box: SqlBox):
    """Columns with types, rows as lists, whether there are more, and how new it is."""
    reply = await box.run("SELECT topic, count(*) AS n FROM notes GROUP BY topic ORDER BY topic")

    as_of = reply.pop("as_of")
    assert reply == {
        "columns": [{"name": "topic", "type": "VARCHAR"}, {"name": "n", "type": "BIGINT"}],
        "rows": [["billing", 50], ["other", 50]],
        "truncated": False,
    }
    assert tokens.decode(as_of["token"]) == tokens.FeedToken("store", boxed.ROWS)
    assert as_of["at"].endswith("Z")


@pytest.mark.parametrize(
    ("expression", "cell"),
    [
        ("NULL", None),
        ("true", True),
        ("7::TINYINT", 7),
        ("9007199254740991", 9007199254740991),
        ("9007199254740992", "9007199254740992"),
        ("170141183460469231731687303715884105727::HUGEINT", "170141183460469231731687303715884105727"),
        ("sum(1)", 1),
        ("0.5", 0.5),
        ("12345678901234567890.123::DECIMAL(38, 3)", "12345678901234567890.123"),
        ("0.1::DOUBLE", 0.1),
        ("'NaN'::DOUBLE", None),
        ("'-inf'::DOUBLE", None),
        ("DATE '2026-01-02'", "2026-01-02"),
        ("TIME '03:04:05'", "03:04:05"),
        ("TIMESTAMP '2026-01-02 03:04:05.006'", "2026-01-02T03:04:05.006000Z"),
        ("TIMESTAMPTZ '2026-01-02 03:04:05+01'", "2026-01-02T02:04:05Z"),
        ("INTERVAL 3 MONTH", "3 months"),
        ("'\\x00\\xFF'::BLOB", "AP8="),
        ("'日本'", "日本"),
        ("[1, NULL, 3]", [1, None, 3]),
        ("{'a': 1, 'b': DATE '2026-01-02'}", {"a": 1, "b": "2026-01-02"}),
        ("MAP {'k': 1.5}", {"k": 1.5}),
        ("'{\"a\": 1}'::JSON", '{"a": 1}'),
        ("any_value(state_due) ", "2026-01-02T02:04:05Z"),
    ],
)
async def test_each_kind_of_sql_value_becomes_json(box: SqlBox, expression: str, cell: Any):
    """Each kind of value as docs/sql.md says: exact, or as text, or null."""
    found = await one(box, f"SELECT {expression} FROM (FROM notes LIMIT 1)")

    assert found == cell
    assert type(found) is type(cell)


async def test_columns_of_the_same_name_stay_apart(box: SqlBox):
    """Two columns may be called the same, also where one of them is read in another way."""
    reply = await box.run("SELECT 1 AS a, 2 AS a, TIMESTAMPTZ '2026-01-02 00:00:00Z' AS a -- and no more")

    assert [column["name"] for column in reply["columns"]] == ["a", "a", "a"]
    assert reply["rows"] == [[1, 2, "2026-01-02T00:00:00Z"]]


async def test_the_answers_are_a_table_too(box: SqlBox):
    """`answers` has a row for each answer, and the same counts as the wide table."""
    reply = await box.run(
        "SELECT question, value, count(*), any_value(probability), max(score) FROM answers GROUP BY ALL ORDER BY ALL"
    )

    assert reply["rows"] == [
        ["severity", "annoying", 34, None, 1.0],
        ["severity", "blocked", 33, None, 2.0],
        ["severity", "cosmetic", 33, None, 0.0],
        ["topic", "billing", 50, None, None],
        ["topic", "other", 50, None, None],
        ["urgent", "true", 100, 0.8, None],
    ]


async def test_parameters_are_values_and_never_text_of_the_statement(box: SqlBox):
    """Text, numbers, truth, null and lists are passed by name; what looks like SQL in them is a value."""
    params = {
        "text": "'; DROP VIEW notes; --",
        "number": 3,
        "flag": True,
        "nothing": None,
        "list": ["billing", "other"],
    }

    reply = await box.run(
        "SELECT $text, $number + 1, $flag, $nothing, (SELECT count(*) FROM notes WHERE list_contains($list, topic))",
        params,
    )

    assert reply["rows"] == [["'; DROP VIEW notes; --", 4, True, None, boxed.ROWS]]


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("SELECT $a", {}),
        ("SELECT 1", {"a": 1}),
        ("SELECT $a", {"b": 1}),
        ("SELECT ?", {"1": 1}),
        ("SELECT $a", {"a": {1}}),
    ],
)
async def test_parameters_that_do_not_fit_are_told(box: SqlBox, text: str, params: dict[str, Any]):
    """A missing, a spare and a nameless one, and a value that JSON does not have."""
    with pytest.raises(errors.SqlFailed, match="parameter"):
        await box.run(text, params)


async def test_rows_beyond_the_limit_are_cut_and_told(box: SqlBox):
    """Exactly `limit` rows are not cut, one more is."""
    whole = await box.run("SELECT * FROM range(10)", limit=10)
    cut = await box.run("SELECT * FROM range(11)", limit=10)

    assert (len(whole["rows"]), whole["truncated"]) == (10, False)
    assert (len(cut["rows"]), cut["truncated"]) == (10, True)


async def test_a_reply_ends_at_its_size(box: SqlBox):
    """Rows of half a megabyte: as many as eight megabytes hold, each whole, and `truncated`."""
    reply = await box.run("SELECT repeat('x', 500000) FROM range(100)")

    assert reply["truncated"]
    assert 10 < len(reply["rows"]) < 17
    assert all(row == ["x" * 500_000] for row in reply["rows"])


async def test_a_stream_has_all_rows_in_bounded_parts(box: SqlBox):
    """A hundred thousand rows come in order, a part at a time, none of it large."""
    sizes, following, last = [], 0, {}
    async with contextlib.aclosing(box.frames("SELECT * FROM range(100000)")) as frames:
        async for frame in frames:
            rows = frame.get("rows", [])
            assert [number for [number] in rows] == list(range(following, following + len(rows)))
            following += len(rows)
            sizes.append(len(json.dumps(rows)))
            last = frame

    assert following == 100_000
    assert last == {"truncated": False}
    assert max(sizes) < 4 * limits.FRAME_BYTES


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"limit": limits.LIMIT_MAX + 1}, {"timeout_ms": 0}, {"timeout_ms": 60_001}]
)
async def test_numbers_out_of_bounds_are_refused(box: SqlBox, options: dict[str, int]):
    """The error names the number and the bounds."""
    with pytest.raises(errors.InvalidQuery, match=r"give 1 to \d+"):
        await box.run("SELECT 1", **options)


# Nobody else's trouble


@pytest.mark.parametrize("text", [RUNAWAY, FOREVER])
async def test_a_runaway_is_stopped_at_its_time_and_nobody_notices(box: SqlBox, text: str):
    """While it runs, and after it was stopped, another statement gets its answer."""
    late = asyncio.create_task(box.run(text, timeout_ms=700))
    beside = await one(box, "SELECT count(*) FROM notes")

    with pytest.raises(errors.SqlTimeout):
        await late
    assert beside == boxed.ROWS
    assert await one(box, "SELECT count(*) FROM notes") == boxed.ROWS


async def test_a_process_that_hangs_is_killed_and_replaced(tmp_path: Path):
    """A stopped process cannot end its statement by itself; its parent does, in time."""
    async with boxed.boxed(tmp_path, processes=1) as (box, _):
        late = asyncio.create_task(box.run(RUNAWAY, timeout_ms=800))
        pid = await running(box)
        os.kill(pid, signal.SIGSTOP)

        with pytest.raises(errors.SqlTimeout):
            await late
        assert await one(box, "SELECT 1") == 1
        assert not alive(pid)


async def test_a_process_that_is_killed_is_told_and_replaced(tmp_path: Path):
    """Killed at work: that statement's error. Killed at rest: nobody's."""
    async with boxed.boxed(tmp_path, processes=1) as (box, _):
        working = asyncio.create_task(box.run(RUNAWAY, timeout_ms=20_000))
        os.kill(await running(box), signal.SIGKILL)

        with pytest.raises(errors.SqlTooLarge, match="has ended"):
            await working
        assert await one(box, "SELECT 1") == 1
        [idle] = box._pool.idle
        os.kill(idle.pid, signal.SIGKILL)
        await idle.wait()
        assert await one(box, "SELECT 2") == 2


async def test_a_hundred_at_once_all_get_their_own_answers(box: SqlBox):
    """More than there are processes wait their turn; good and bad ones do not mix."""
    texts = [f"SELECT {number} + count(*) FROM notes" if number % 5 else "SELECT nothing" for number in range(100)]
    found = await asyncio.gather(*(one(box, text, timeout_ms=60_000) for text in texts), return_exceptions=True)

    for number, answer in enumerate(found):
        if number % 5:
            assert answer == number + boxed.ROWS
        else:
            assert isinstance(answer, errors.SqlFailed)
    assert len(box._pool.idle) <= box_.PROCESSES


async def test_who_waits_too_long_or_is_too_many_is_told(tmp_path: Path):
    """One process, at work: the next statement waits for all of its time; beyond the bound none waits at all."""
    async with boxed.boxed(tmp_path, processes=1) as (box, _):
        working = asyncio.create_task(box.run(RUNAWAY, timeout_ms=30_000))
        await running(box)
        with pytest.raises(errors.SqlTimeout, match="free process"):
            await box.run("SELECT 1", timeout_ms=50)
        waiting = [asyncio.create_task(box.run("SELECT 1", timeout_ms=30_000)) for _ in range(box_.WAITING_MAX)]
        await eventually(lambda: box._pool.waiting == box_.WAITING_MAX)

        with pytest.raises(errors.SqlBusy):
            await box.run("SELECT 1")
        for task in (working, *waiting):
            task.cancel()
        ended = await asyncio.gather(working, *waiting, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended)
        assert await one(box, "SELECT 1") == 1


async def test_a_statement_nobody_waits_for_any_more_is_stopped(tmp_path: Path):
    """A cancelled call and a stream that is left early free their process, which does not go on working."""
    async with boxed.boxed(tmp_path, processes=1) as (box, _):
        call = asyncio.create_task(box.run(RUNAWAY, timeout_ms=30_000))
        pid = await running(box)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        assert not alive(pid)
        async with contextlib.aclosing(box.frames("SELECT * FROM range(100000000)")) as frames:
            async for frame in frames:
                if "rows" in frame:
                    break
        assert await one(box, "SELECT 1") == 1


async def test_closing_ends_what_runs_and_leaves_nothing_behind(tmp_path: Path):
    """Processes and private snapshots are gone, whoever was waiting is told, and closing twice does no harm."""
    async with boxed.boxed(tmp_path) as (box, _):
        call = asyncio.create_task(box.run(RUNAWAY, timeout_ms=30_000))
        pid = await running(box)

        await box.aclose()
        await box.aclose()

        with pytest.raises(errors.PipelineError):
            await call
        assert not alive(pid)
        assert kept(tmp_path) == []
        with pytest.raises(errors.SqlBusy):
            await box.run("SELECT 1")


def kept(folder: Path) -> list[Path]:
    """Return the snapshots that a box keeps."""
    return [path for path in folder.glob("*/*") if path.is_dir()]


def alive(pid: int) -> bool:
    """Say whether there is such a process, ended ones that nobody has collected included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# The process is clean


@linux
async def test_a_process_starts_clean(box: SqlBox, monkeypatch: pytest.MonkeyPatch):
    """No variable, descriptor or session of ours reaches it, and the system limits what it can take."""
    monkeypatch.setenv("FACETLINE_STORE_URL", "postgresql://u:secret@127.0.0.1/x")
    with open(os.devnull) as opened:  # noqa: PTH123, ASYNC230
        os.set_inheritable(opened.fileno(), True)
        for process in box._pool.idle:
            process.kill()
        box._pool.idle.clear()
        await box.run("SELECT 1")
        pid = box._pool.idle[-1].pid
        found = Path(f"/proc/{pid}")
        limits_ = (found / "limits").read_text()
        variables = (found / "environ").read_bytes()
        descriptors = [str(path.readlink()) for path in (found / "fd").iterdir()]

    assert b"FACETLINE" not in variables
    assert b"HOME" not in variables
    assert all(path.startswith(("pipe:", "socket:", "/dev/null")) for path in descriptors)
    assert len(descriptors) <= 5
    assert os.getsid(pid) == pid
    for name in ("Max core file size", "Max file size", "Max processes"):
        assert f"{name:<26}0 " in limits_
    assert f"Max address space         {(limits.MEMORY_MB + limits.BESIDE_MB) << 20}" in limits_


async def test_without_the_first_fence_nothing_outside_is_reached(tmp_path: Path):
    """DuckDB as the process sets it up refuses files and settings by itself, whatever statement reaches it."""
    (tmp_path / "snap").mkdir()
    (tmp_path / "secret.csv").write_text("word\nsecret\n")
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", WITHOUT_FENCE, str(tmp_path)],
        env=commands.environment({}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert {kind for kind, _ in json.loads(done.stdout)} <= REFUSALS, done.stdout
    assert sorted(os.listdir(tmp_path)) == ["secret.csv", "snap"]  # noqa: PTH208 (names)
    assert os.listdir(tmp_path / "snap") == ["answers.parquet"]  # noqa: PTH208 (names)


REFUSALS = {"PermissionException", "InvalidInputException", "CatalogException", "BinderException", "IOException"}
WITHOUT_FENCE = """
import json, os, sys
import duckdb
folder = sys.argv[1]
duckdb.execute(f"COPY (SELECT 1 AS n) TO '{folder}/snap/answers.parquet'")
from facetline.facets.sql_sandbox import child
child.limit_itself()
opened = child.Opened(folder + "/snap", ["answers"])
given = [1]
found = []
for text in [
    f"SELECT * FROM read_text('{folder}/secret.csv')", f"FROM '{folder}/secret.csv'", "FROM '../secret.csv'",
    f"SELECT * FROM glob('{folder}/*')", f"COPY answers TO '{folder}/stolen.csv'", "COPY answers TO 'stolen.parquet'",
    f"ATTACH '{folder}/other.db'", "INSTALL httpfs", "LOAD httpfs", "SET enable_external_access = true",
    "SET allowed_directories = ['/']", "SET lock_configuration = false", "FROM given", "SELECT getenv('HOME')",
    f"EXPORT DATABASE '{folder}/all'", "SET threads = 8", "SET memory_limit = '100GB'",
]:
    try:
        opened.connection.execute(text).fetchall()
    except duckdb.Error as error:
        found.append((type(error).__name__, text))
    else:
        found.append(("done", text))
try:
    with open(folder + "/snap/written", "w") as file:
        file.write("x" * 10)
except OSError:
    os.unlink(folder + "/snap/written")
else:
    found.append(("written", ""))
print(json.dumps(found))
"""


@linux
async def test_a_process_ends_with_its_parent(tmp_path: Path):
    """The parent is killed while a statement runs: nothing of ours goes on computing."""
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(tmp_path)),
        env=commands.environment({}),
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    await eventually(lambda: cpu_s(pid) > 1.0, deadline_s=60, what="the statement is at work")
    parent.kill()
    await parent.wait()

    await eventually(lambda: not computing(pid), what="the process of the statement ends")


def cpu_s(pid: int) -> float:
    """Return how much processor time a process has had; it starts with some tenths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def computing(pid: int) -> bool:
    """Say whether a process is there and no zombie that its new parent has not collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


PARENT = """
import asyncio, sys
from pathlib import Path
import boxed
async def main():
    async with boxed.boxed(Path(sys.argv[1])) as (box, _):
        text = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
        call = asyncio.create_task(box.run(text, timeout_ms=60_000))
        while not box._pool.running:
            await asyncio.sleep(0.01)
        print(next(iter(box._pool.running)).pid, flush=True)
        await call
asyncio.run(main())
"""


# Snapshots


async def test_a_snapshot_is_made_anew_when_the_view_has_moved_and_only_then(tmp_path: Path):
    """Statements see what was applied before; while nothing changes, none is made; old ones are removed."""
    async with boxed.boxed(tmp_path, refresh_s=0.0) as (box, source):
        before = await box.run("SELECT count(*) FROM notes")
        again = await box.run("SELECT count(*) FROM notes")
        assert (source.made, before, again["rows"]) == (1, again, [[boxed.ROWS]])

        await asyncio.to_thread(source.view.apply, [boxed.record(boxed.ROWS + 1)])
        after = await box.run("SELECT count(*) FROM notes")

        assert after["rows"] == [[boxed.ROWS + 1]]
        assert after["as_of"] != before["as_of"]
        assert source.made == 2
        assert len(kept(tmp_path)) == 1


async def test_snapshots_are_not_made_more_often_than_told(tmp_path: Path):
    """Within `refresh_s` a statement goes with the snapshot that there is."""
    async with boxed.boxed(tmp_path, refresh_s=3_600) as (box, source):
        await box.run("SELECT 1")
        await asyncio.to_thread(source.view.apply, [boxed.record(boxed.ROWS + 1)])

        assert await one(box, "SELECT count(*) FROM notes") == boxed.ROWS
        assert source.made == 1


async def test_a_statement_keeps_the_snapshot_that_it_began_with(tmp_path: Path):
    """A long one reads on from files that a newer snapshot has replaced; they go when it has ended."""
    async with boxed.boxed(tmp_path, refresh_s=0.0) as (box, source):
        reading = box.frames("SELECT n.doc_uri, r.range, repeat('x', 1000) FROM notes n, range(50) r")
        async with contextlib.aclosing(reading):
            await anext(reading)
            await asyncio.to_thread(source.view.apply, [boxed.record(boxed.ROWS + 1)])
            newer = await one(box, "SELECT count(*) FROM notes")
            rows = 0
            async for frame in reading:
                rows += len(frame.get("rows", ()))

        assert (newer, rows) == (boxed.ROWS + 1, boxed.ROWS * 50)
        assert len(kept(tmp_path)) == 1


class Failing(boxed.Source):
    """A source that fails when told to."""

    failure: errors.PipelineError | None = None

    async def snapshot(self, folder: Path) -> Made:
        """Write a snapshot, or not."""
        if self.failure is not None:
            raise self.failure
        return await super().snapshot(folder)


async def test_while_no_snapshot_can_be_made_the_last_one_serves(tmp_path: Path):
    """Without any, the reason is told; with one, statements go on and say how old it is."""
    async with boxed.boxed(tmp_path / "unused") as (_, good):
        source = Failing(good.view)
        source.failure = errors.ExportFailed("no room")
        view_folder = tmp_path / "unused"
        failing = SqlBox(source, view_folder, refresh_s=0.0)
        try:
            with pytest.raises(errors.ExportFailed, match="no room"):
                await failing.run("SELECT 1")
            source.failure = None
            first = await failing.run("SELECT count(*) FROM notes")
            source.failure = errors.ExportFailed("no room")
            await asyncio.to_thread(good.view.apply, [boxed.record(boxed.ROWS + 1)])

            assert await failing.run("SELECT count(*) FROM notes") == first
        finally:
            await failing.aclose()


async def test_a_process_knows_its_memory():
    """What a process watches itself by: it grows with what the process holds."""
    before = residence.bytes_used()
    held = bytearray(os.urandom(1 << 20) * 64)

    assert residence.bytes_used() - before > len(held) / 2


async def test_idle_processes_are_let_go(tmp_path: Path):
    """What nobody needed for a while gives its memory back."""
    async with boxed.boxed(tmp_path) as (box, _):
        await box.run("SELECT 1")
        [process] = box._pool.idle
        process.idle_since_s = time.monotonic() - box_.IDLE_S - 1

        box._let_go()

        await process.wait()
        assert box._pool.idle == []
        assert await one(box, "SELECT 1") == 1
