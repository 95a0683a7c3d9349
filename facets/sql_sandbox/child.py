"""The process in which other people's SQL runs: reads a request from standard input, writes rows to standard output.

It is started clean (`process`) and limits itself before it touches anything: memory, processor time, files, processes.
DuckDB sees the Parquet files of one snapshot and nothing else. A second thread ends the process when it must be ended:
its parent is gone, memory is used up, or a statement does not stop on request.
"""

import contextlib
import json
import os
import re
import resource
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from facetline.facets import duckdb_connection
from facetline.facets.sql_sandbox import frames, limits, memory, statement, values

if TYPE_CHECKING:
    import duckdb

WATCH_S = 0.05
PAGE_ROWS = 100
FILES_MAX = 64
MESSAGE_MAX = 1_000


def main() -> None:
    """Answer requests until standard input ends."""
    limit_itself()
    reader, writer = private(0, "rb"), private(1, "wb")
    watch = Watch(os.getppid())
    threading.Thread(target=watch.run, name="watch", daemon=True).start()
    with contextlib.suppress(ValueError, OSError, AttributeError):
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))  # for a user who is not root: no process or thread more
    opened: Opened | None = None
    with contextlib.suppress(BrokenPipeError):
        while (request := frames.read(reader)) is not None:
            if opened is None or opened.folder != request["folder"]:
                opened = Opened(request["folder"], request["tables"])
            with watch.over(opened.connection, request["timeout_s"]):
                for frame in answer(opened, request):
                    writer.write(frame)
                    writer.flush()


def limit_itself() -> None:
    """Set the limits of the operating system; where one of them does not exist, the watch is what remains."""
    address = (limits.MEMORY_MB + limits.BESIDE_MB) << 20
    for name, most in (
        ("RLIMIT_CORE", 0),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_NOFILE", FILES_MAX),
        ("RLIMIT_AS", address),
    ):
        with contextlib.suppress(ValueError, OSError, AttributeError):
            resource.setrlimit(getattr(resource, name), (most, most))


def private(descriptor: int, mode: str) -> BinaryIO:
    """Take a standard stream for frames alone: whatever a library prints (DuckDB a bar, say) goes nowhere."""
    taken = os.fdopen(os.dup(descriptor), mode)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
    return taken  # type: ignore[return-value]


class Watch:
    """Looks after the process from a second thread while a statement runs."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._busy = threading.Event()
        self._until_s = 0.0
        self._running: duckdb.DuckDBPyConnection | None = None

    @contextlib.contextmanager
    def over(self, connection: "duckdb.DuckDBPyConnection", timeout_s: float) -> Iterator[None]:
        """Watch over one statement."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = int(used.ru_utime + used.ru_stime + timeout_s) + 2
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        self._until_s = time.monotonic() + timeout_s
        self._running = connection
        self._busy.set()
        try:
            yield
        finally:
            self._busy.clear()
            self._running = None

    def run(self) -> None:
        """Watch until the process ends."""
        most = (limits.MEMORY_MB + limits.BESIDE_MB // 2) << 20
        while True:
            self._busy.wait()
            if os.getppid() != self._parent:
                os._exit(frames.TIME_CODE)
            if memory.bytes_used() > most:
                os._exit(frames.MEMORY_CODE)
            late_s = time.monotonic() - self._until_s
            running = self._running
            if late_s > limits.STOP_S:
                os._exit(frames.TIME_CODE)
            if late_s > 0 and running is not None:
                running.interrupt()
            time.sleep(WATCH_S)


class Opened:
    """One snapshot as DuckDB sees it: a view of each file, by a name without a path."""

    def __init__(self, folder: str, tables: Sequence[str]) -> None:
        self.folder = folder
        os.chdir(folder)
        self.connection = duckdb_connection.connect(
            {
                "threads": 1,  # one statement, one core
                "memory_limit": f"{limits.MEMORY_MB}MB",
                "temp_directory": "",
                "allow_community_extensions": "false",
                "python_enable_replacements": "false",
                "errors_as_json": "true",
            }
        )
        files = ", ".join(f"'{name}.parquet'" for name in tables)
        for name in tables:
            self.connection.execute(f"CREATE VIEW \"{name}\" AS SELECT * FROM read_parquet('{name}.parquet')")  # noqa: S608
        self.connection.execute(f"SET allowed_paths = [{files}]")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")
        self.refused = statement.refused_of(self.connection)


def answer(opened: Opened, request: dict[str, Any]) -> Iterator[bytes]:
    """Return the frames of one answer: columns, rows, and the end; or an error at any place."""
    import duckdb

    try:
        checked = statement.check(opened.connection, request["sql"], request["params"], opened.refused)
        found, columns = _execute(opened.connection, checked, request["params"])
        yield from _rows(found, columns, request["limit"], request["bytes"])
    except statement.Refusal as refused:
        yield _error(refused.code, refused.message, **refused.more)
    except MemoryError:
        yield _error("sql-too-large", _MEMORY)
    except RecursionError:
        yield _error("sql-too-large", "the statement or a value is nested too deeply")
    except duckdb.InterruptException:
        yield _error("sql-timeout", "the statement took longer than it may")
    except (duckdb.FatalException, duckdb.InternalException):
        # After such an error nothing that the library says is to be trusted, and a new process is quickly made.
        os._exit(frames.FAILED_CODE)
    except duckdb.Error as error:
        yield _failure(error, request["sql"])
    except (OverflowError, ValueError) as error:  # dates that Python does not have
        yield _error("sql-error", f"a value cannot be returned, cast it to text: {error}")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_MEMORY = f"the statement needs more memory than the {limits.MEMORY_MB} MB it may have"


def _execute(
    connection: "duckdb.DuckDBPyConnection", text: str, params: dict[str, Any]
) -> "tuple[duckdb.DuckDBPyConnection, list[dict[str, str]]]":
    """Return what gives the rows, and the columns as the statement made them."""
    found = connection.execute(text, params) if params else connection.execute(text)
    columns = [{"name": column[0], "type": str(column[1])} for column in found.description or ()]
    if not any(values.readable(column["type"], "") for column in columns):
        return found, columns
    # Columns may have equal names, so they are numbered. The statement is run again, which only these types cost.
    names = [f"c{place}" for place in range(len(columns))]
    cells = [values.readable(column["type"], name) or name for name, column in zip(names, columns, strict=True)]
    wrapped = f"SELECT {', '.join(cells)} FROM (\n{text}\n) AS given({', '.join(names)})"  # noqa: S608 (checked above)
    return (connection.execute(wrapped, params) if params else connection.execute(wrapped)), columns


def _rows(
    found: "duckdb.DuckDBPyConnection", columns: Sequence[dict[str, str]], limit: int, bytes_max: int
) -> Iterator[bytes]:
    yield frames.encode({"columns": columns})
    waiting: list[bytes] = []
    held = sent = count = 0
    while page := found.fetchmany(PAGE_ROWS):
        for row in page:
            encoded = _encoded(row, columns)
            if count == limit or sent + held + len(encoded) > bytes_max:
                yield from _last(waiting, truncated=True)
                return
            waiting.append(encoded)
            held += len(encoded) + 1
            count += 1
            if held >= limits.FRAME_BYTES:
                yield _page(waiting)
                sent, held, waiting = sent + held, 0, []
    yield from _last(waiting, truncated=False)


def _page(rows: Sequence[bytes]) -> bytes:
    return frames.wrap(b'{"rows":[' + b",".join(rows) + b"]}")


def _last(rows: Sequence[bytes], *, truncated: bool) -> Iterator[bytes]:
    if rows:
        yield _page(rows)
    yield frames.encode({"end": {"truncated": truncated}})


def _encoded(row: Sequence[Any], columns: Sequence[dict[str, str]]) -> bytes:
    """Return a row as JSON.

    Raises:
        Refusal: a cell, or all of them together, is larger than it may be.
    """
    for column, value in zip(columns, row, strict=True):
        # Before it is copied any further.
        if isinstance(value, (str, bytes)) and len(value) > limits.CELL_BYTES_MAX:
            raise _too_large(column["name"])
    cells = [values.cell(value) for value in row]
    whole: bytes = _encode(cells).encode()
    if len(whole) > limits.CELL_BYTES_MAX:
        for column, cell in zip(columns, cells, strict=True):
            if len(_encode(cell).encode()) > limits.CELL_BYTES_MAX:
                raise _too_large(column["name"])
        if len(whole) > limits.ROW_BYTES_MAX:
            message = f"a row has {len(whole):,} bytes, at most {limits.ROW_BYTES_MAX:,} are taken"
            raise statement.Refusal(message, "sql-too-large")
    return whole


def _too_large(column: str) -> statement.Refusal:
    return statement.Refusal(
        f"a cell of column {column[:80]!r} is larger than {limits.CELL_BYTES_MAX:,} bytes; select a part of it",
        "sql-too-large",
    )


def _failure(error: "duckdb.Error", text: str) -> bytes:
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        return _error("sql-too-large", _MEMORY)
    if isinstance(error, duckdb.PermissionException):
        return _error("sql-not-read-only", "files and settings are out of reach: SELECT from the tables only")
    detail = str(error)
    try:
        data = json.loads(detail[detail.index("{") :])
    except ValueError:
        return _error("sql-error", detail)
    message = str(data.get("exception_message", detail))
    if "expression depth" in message:
        return _error("sql-too-large", "the statement is nested too deeply")
    more: dict[str, Any] = {}
    if str(data.get("position", "")).isdigit():
        raw = text.encode()
        before = raw[: int(data["position"])].decode(errors="ignore")
        if "Referenced column" in message:
            message += _column_hint(raw[int(data["position"]) :].decode(errors="ignore"))
        more = {"line": before.count("\n") + 1, "column": len(before) - (before.rfind("\n") + 1) + 1}
    if data.get("candidates"):
        more["allowed"] = [each.strip() for each in str(data["candidates"]).split(",")][:20]
    return _error("sql-error", message, **more)


def _column_hint(rest: str) -> str:
    """Return what else may be meant by a column that there is not; `rest` begins with its name as it was written."""
    if rest.startswith('"'):
        return "\nText stands in single quotes; what is in double ones is a name."
    if re.match(r"(\w+\.)?body\b", rest, re.IGNORECASE):
        return "\nBodies are not in these tables, only answers and your own fields."
    return ""


def _error(code: str, message: str, **more: Any) -> bytes:
    return frames.encode({"error": {"code": code, "message": message[:MESSAGE_MAX], **more}})
