"""Broker and database that stop, crash, fill up and cut connections, and a clock that jumps: work waits, and none is
lost.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig as rigs
from commands import Ended
from polling import eventually
from rig import LEASES_S, Rig
from runtimes import ANSWERED_S
from trials import Trial

KEYS = [f"t{number}" for number in range(12)]
KAFKA = [pytest.mark.kafka, pytest.mark.postgres]
DISK = "3m"


@pytest.mark.parametrize("any_rig", [pytest.param("kafka", marks=KAFKA)], indirect=True)
async def test_broker_killed_while_writing(any_rig: Rig):
    """Without a broker a write is refused within its bound, wholly; a worker that starts then waits; all goes on."""
    rig = any_rig
    assert rig.broker is not None
    rig.running("one")
    async with rig.trial() as trial:
        await trial.put("before", "m01", wait="answered")
        await asyncio.gather(*(trial.put(key, "m01", wait="none") for key in KEYS))
        await trial.dally()
        await asyncio.to_thread(rig.broker.kill)
        rig.start("two")
        refused = await asyncio.gather(*(trial.put(key, "m02", wait="none") for key in KEYS[:3]))
        await asyncio.to_thread(rig.broker.start)
        after = await eventually(lambda: _taken(trial, "m03"), deadline_s=ANSWERED_S, what="a write is taken again")

        assert refused == [None] * 3
        assert after is not None


async def _taken(trial: Trial, words: str) -> object:
    return await trial.put("t0", words, wait="answered")


@pytest.mark.parametrize("any_rig", [pytest.param("kafka", marks=KAFKA)], indirect=True)
async def test_database_crashes_while_everybody_works(any_rig: Rig):
    """A database that crashes and comes back is waited for: no event is a dead letter, none is applied twice."""
    rig = any_rig
    assert rig.server is not None
    rig.running("one", "two")
    async with rig.trial() as trial:
        stop = asyncio.Event()
        writing = asyncio.create_task(trial.scribble(KEYS, stop, 0.02))
        await eventually(lambda: sum(map(trial.calls, KEYS)) > 5, deadline_s=ANSWERED_S, what="they are at work")
        await trial.dally()
        await asyncio.to_thread(rig.server.crash)
        meanwhile = [asyncio.create_task(trial.put(key, "m04", wait="none")) for key in KEYS]
        await asyncio.to_thread(rig.server.run)
        stop.set()
        await asyncio.gather(writing, *meanwhile)
        rig.site.clock.shift(LEASES_S)
    assert [worker.poll() for worker in rig.workers.values()] == [None, None]


@pytest.mark.parametrize("any_rig", [pytest.param("kafka", marks=KAFKA)], indirect=True)
async def test_connections_cut_in_the_middle_of_commits(any_rig: Rig):
    """Whether the commit arrived or only its answer was lost: what is done again changes nothing twice."""
    rig = any_rig
    assert rig.proxy is not None
    rig.running("one", "two")
    async with rig.trial() as trial:
        before = dict(rig.proxy.cuts)
        rig.proxy.cut(4)
        for round_ in range(3):
            await asyncio.gather(*(trial.put(key, f"m0{round_}", wait="none") for key in KEYS))
        await eventually(
            lambda: min(rig.proxy.cuts[each] - before[each] for each in before) >= 3,
            deadline_s=ANSWERED_S,
            what="connections were cut both ways",
        )
        await trial.caught_up()
        rig.proxy.cut(0)
        rig.site.clock.shift(LEASES_S)  # claims whose answer was lost
        after = await trial.settled(*KEYS)

        assert {each["facets"]["topic"]["choice"] for each in after} == {"m02"}


@pytest.mark.parametrize("any_rig", ["local", pytest.param("kafka", marks=KAFKA)], indirect=True)
async def test_calls_stay_accounted_for_when_the_clock_jumps(any_rig: Rig):
    """An hour forward ends every lease, some seconds back make nobody wait for ever: calls stay accounted for."""
    any_rig.running("one")
    async with any_rig.trial() as trial:
        trial.on("gate")
        for key in KEYS[:4]:
            await trial.put(key, "m05 hold=gate")
        await trial.called(KEYS[3])
        await trial.dally()
        any_rig.site.clock.shift(3600)
        await trial.put("later", "m06", wait="none")
        await eventually(lambda: _crashes(trial, KEYS[:4]), deadline_s=ANSWERED_S, what="the leases were taken over")
        any_rig.site.clock.shift(-2)
        trial.off("gate")
        await trial.put("last", "m07", wait="none")
        await trial.caught_up()
        after = await trial.settled(*KEYS[:4], "later", "last")

        assert {each["status"] for each in after} == {"indexed"}


@pytest.mark.parametrize("any_rig", ["local", pytest.param("kafka", marks=KAFKA)], indirect=True)
async def test_the_clock_goes_back_an_hour(any_rig: Rig):
    """What waited then is asked about all the same, what was being asked is asked once, and reindexing goes on."""
    any_rig.running("one")
    async with any_rig.trial() as trial:
        trial.on("gate")
        trial.on("gone")
        await trial.put("held", "m05 hold=gate")
        await trial.called("held")
        await trial.dally()
        await trial.put("retried", "m06 away=gone", wait="none")
        await trial.called("retried")  # its six tries last for little more than a second: no dallying from here on
        any_rig.site.clock.shift(-3600)
        trial.off("gate")
        trial.off("gone")
        await asyncio.gather(*(trial.put(key, "m07", wait="none") for key in KEYS))
        await trial.caught_up()
        after = await trial.settled("held", "retried", *KEYS)

        assert {each["status"] for each in after} == {"indexed"}
        assert trial.calls("held") == 1


async def _crashes(trial: Trial, keys: list[str]) -> bool:
    return all([(await trial.get(key))["calls"]["crashes"] > 0 for key in keys])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of three megabytes of its own."""
    if os.geteuid() != 0:
        pytest.skip("a small disk (tmpfs) can only be mounted as root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", folder], check=False, capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def test_writes_are_refused_whole_while_the_disk_is_full(small_disk: Path):
    """Writes that find the disk full are refused whole and say so; with room again everything goes on, nothing lost."""
    with rigs.local(small_disk.parent) as rig:
        (small_disk.parent / ".facetline").symlink_to(small_disk)
        filler = small_disk / "filler"
        rig.running("one")
        async with rig.trial() as trial:
            await trial.put("first", "m01", wait="answered")
            trial.on("gate")
            await trial.put("held", "m02 hold=gate", wait="applied")
            await trial.called("held")
            _fill(filler)
            said = [await asyncio.to_thread(_write, rig, trial, f"full{number}") for number in range(2)]
            trial.off("gate")  # its answer finds no room either
            held = await trial.get("held")
            filler.unlink()
            after = await trial.put("afterwards", "m03", wait="answered")
            (held_after,) = await trial.settled("held")

            assert [each.code for each in said] == [1, 1], said
            assert all("full" in each.err and "Traceback" not in each.err for each in said), said
            assert held["status"] == "pending"
            assert (after or {})["status"] == held_after["status"] == "indexed"
            assert rig.workers["one"].poll() is None


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 512):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def _write(rig: Rig, trial: Trial, key: str) -> Ended:
    words = ("write", trial.uri(key), "--body", "m09 " * 20_000, "--wait", "applied")
    return rig.site.place.run(*words)
