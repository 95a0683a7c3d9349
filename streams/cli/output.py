"""What people and programs see: results on standard output, everything else on standard error.

What is for people goes through `facets.display`, wherever it is from: nothing in it acts on a terminal. JSON, NDJSON
and CSV are for programs and stay exact; on a terminal JSON writes the same characters as its own escapes.
"""

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import typer

from facetline.facets import display, masking

LINE_EVERY_S = 5.0
"""How often a command that is not on a terminal says how far it is."""


def result(value: Any) -> None:
    """Print one JSON value on a line of its own."""
    encoded = json.dumps(value, ensure_ascii=False, allow_nan=False)
    _print(display.json_text(encoded) if sys.stdout.isatty() else encoded)


def text(text: str = "") -> None:
    """Print a line, or a text of several, for people."""
    _print(display.block(text))


def lines(text: str) -> None:
    """Print whole lines for programs at once, exactly, their ends included."""
    _print(text.removesuffix("\n"))


def _print(line: str) -> None:
    try:
        print(line, flush=True)  # noqa: T201
    except BrokenPipeError:  # the reader has seen enough; the command ends without a word
        raise
    except OSError as failure:
        error(f"standard output cannot be written: {failure.strerror}; what the command did stays done")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter tries again, and complains
        raise typer.Exit(1) from None


def note(line: str) -> None:
    """Say something beside the result, on one line."""
    _print_text(display.line(masking.scrubbed(line)))


def error(message: str) -> None:
    """Say what went wrong."""
    first, *more = display.block(masking.scrubbed(message)).split("\n")
    _print_text("\n".join([f"facetline: {first}", *(f"  {line}" for line in more)]))


def _print_text(shown: str) -> None:
    print(shown, file=sys.stderr, flush=True)  # noqa: T201


def answers(facets: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Return a document's answers in a line: `topic=billing 0.93  severity=annoying`."""
    return "  ".join(f"{name}={_answer(value)}" for name, value in sorted((facets or {}).items()))


def _answer(value: Mapping[str, Any]) -> str:
    """Return one answer; confidences are rounded down, so that 1.00 is only ever a full one."""
    message = {"choice": value.get("choice"), "score": value.get("level")}.get(value["type"])
    if value["type"] == "boolean":
        message = "yes" if value["value"] else "no"
    confidence = value.get("confidence")
    return str(message) if confidence is None else f"{message} {math.floor(confidence * 100) / 100:.2f}"


def table(rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows with aligned columns; the last column is not padded."""
    listed = [tuple(map(display.line, row)) for row in rows]
    if not listed:
        return
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]) - 1)]
    for row in listed:
        text("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip())


class Progress:
    """A bar on a terminal, a line every few seconds elsewhere; both on standard error. Used in a `with`."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what = display.line(what)
        self._total = total
        self._done = 0
        self._bar: Any = None
        self._task: Any = None
        self._last_s = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich import console, progress  # slow to import, and only a terminal needs it

            columns = (
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.MofNCompleteColumn() if self._total is not None else progress.TextColumn("{task.completed:,}"),
                progress.TimeElapsedColumn(),
            )
            self._bar = progress.Progress(*columns, console=console.Console(stderr=True))
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, done: int, total: int | None = None) -> None:
        """Say how many are done, and how many there are if that has changed."""
        self._done = done
        self._total = self._total if total is None else total
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=self._total)
        elif time.monotonic() - self._last_s >= LINE_EVERY_S:
            self._last_s = time.monotonic()
            of = "" if self._total is None else f" of {self._total}"
            note(f"{self._what}: {done}{of}")
