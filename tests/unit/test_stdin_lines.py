"""Lines of standard input: whole, in order, bounded, however they come through the pipe."""

import asyncio
import os
import threading

import pytest
from polling import eventually

from facetline.facets.agents import stdin_lines
from facetline.facets.agents.stdin_lines import StdinLines


def write(descriptor: int, *parts: bytes) -> None:
    """Write the parts into a pipe from a thread of their own, and close it."""

    def run() -> None:
        for part in parts:
            os.write(descriptor, part)
        os.close(descriptor)

    threading.Thread(target=run).start()


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ([], []),
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\nc", b"\n\n"], ["ab", "c", ""]),
        ([b"a\nlast"], ["a", "last"]),
        (["ü".encode()[:1], "ü".encode()[1:] + b"\n"], ["ü"]),
        ([b"\xff\n"], ["\ufffd"]),
        ([b"x" * 300_000 + b"\ny"], ["x" * 300_000, "y"]),
        ([b"%d\n" % number for number in range(200)], [str(number) for number in range(200)]),
    ],
    ids=range(8),
)
async def test_lines_come_whole_and_in_order(parts: list[bytes], lines: list[str]):
    """Whatever the pieces, each line is yielded once, whole, the last one also without its end."""
    reading, writing = os.pipe()
    write(writing, *parts)

    assert [line async for line in StdinLines(reading)] == lines
    os.close(reading)


async def test_a_line_without_end_is_the_end():
    """A line beyond the bound ends the input instead of filling the memory."""
    reading, writing = os.pipe()

    def run() -> None:
        try:
            os.write(writing, b"first\n")
            while True:
                os.write(writing, b"x" * stdin_lines.CHUNK_BYTES)
        except OSError:
            os.close(writing)

    writer = threading.Thread(target=run)
    writer.start()
    lines = [line async for line in StdinLines(reading)]
    os.close(reading)

    assert lines == ["first"]
    await eventually(lambda: not writer.is_alive(), what="the writer meets a closed pipe")


async def test_no_more_than_a_few_lines_are_read_ahead():
    """While nobody takes lines, the pipe fills up and its writer waits."""
    reading, writing = os.pipe()
    written = [0]

    def run() -> None:
        for _ in range(200):
            os.write(writing, b"y" * stdin_lines.CHUNK_BYTES + b"\n")
            written[0] += 1
        os.close(writing)

    writer = threading.Thread(target=run)
    writer.start()
    lines = StdinLines(reading)
    await eventually(lambda: written[0] >= stdin_lines.WAITING_MAX, what="lines are read ahead")
    for _ in range(20):
        await asyncio.sleep(0)
    ahead = written[0]
    taken = [line async for line in lines]
    os.close(reading)

    assert ahead < 40
    assert len(taken) == 200
