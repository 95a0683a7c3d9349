"""`python tests/soak.py MINUTES`: simulation and fault tests side by side, with fresh seeds, until the time is over.

Then the large tests that fit into a fifth of the time more. Says each failure with its seed and the command that
repeats it, and ends with one line of counts; the exit code is 1 after any failure, 130 after Ctrl-C without one.
"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENDING_S = 120.0
"""How long runs may take to end: the simulation makes a failing plan small, services are stopped."""
MIN_MINUTES = 0.6
"""With less time left no run is begun."""
EXTRA = 0.2
BROKEN = {3, 4}
"""Exit codes of pytest: an error of its own, and a command that it does not understand."""
LARGE = (
    ("tests/faults/test_bounded.py::test_a_job_over_many_documents", 2.0),
    ("tests/faults/test_models.py::test_documents_are_answered_after_429s_and_an_outage", 5.0),
    ("tests/faults/test_bounded.py::test_large_documents_and_a_slow_model", 8.0),
)
"""Large tests, with the minutes that they take."""
SHOWN_LINES = 80


@dataclass
class Tally:
    """What has been run."""

    passed: int = 0
    runs: int = 0
    failures: list[str] = field(default_factory=list)


class Soak:
    """Runs pytest again and again in two threads."""

    def __init__(self, minutes: float) -> None:
        self.started = time.monotonic()
        self.ends = self.started + minutes * 60
        self.minutes = minutes
        self.tallies = {"simulation": Tally(), "faults": Tally(), "large": Tally()}
        self.stopped = threading.Event()
        self._running: dict[subprocess.Popen[str], str] = {}
        self._logs = Path(tempfile.mkdtemp(prefix="facetline-soak-"))
        self._random = random.SystemRandom()
        self._printing = threading.Lock()

    def run(self) -> int:
        """Do it all; return the exit code."""
        lanes = [threading.Thread(target=self._lane, args=(name,), name=name) for name in ("simulation", "faults")]
        interrupted = False
        try:
            for lane in lanes:
                lane.start()
            while any(lane.is_alive() for lane in lanes):
                for lane in lanes:
                    lane.join(0.5)
                if time.monotonic() > self.ends:
                    self._end_all()
            self._run_large()
        except KeyboardInterrupt:
            interrupted = True
            self.say("interrupted")
            self._end_all(all_=True)
            for lane in lanes:
                lane.join()
        failures = [each for tally in self.tallies.values() for each in tally.failures]
        for each in failures:
            self.say(f"again: {each}")
        self.say(
            ", ".join(f"{name}: {tally.passed} passed in {tally.runs} runs" for name, tally in self.tallies.items())
            + f"; {len(failures)} failed"
        )
        return 1 if failures else 130 if interrupted else 0

    def say(self, text: str) -> None:
        """Print a line with the time that has passed."""
        with self._printing:
            print(f"[{(time.monotonic() - self.started) / 60:5.1f} min] {text}", flush=True)  # noqa: T201 (a script)

    def _lane(self, name: str) -> None:
        turn = 0
        while not self.stopped.is_set() and (left := (self.ends - time.monotonic()) / 60) > MIN_MINUTES:
            seed = self._random.randrange(1_000, 1_000_000_000)
            words, settings = simulation(seed, left) if name == "simulation" else faults(seed, turn)
            if self._pytest(name, seed, words, settings) in BROKEN:
                return  # it would be so again
            turn += 1

    def _pytest(self, name: str, seed: int, words: list[str], settings: Mapping[str, str]) -> int:
        """Run pytest once, counting what it says; return its exit code."""
        tally = self.tallies[name]
        before, failed = tally.passed, len(tally.failures)
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words]
        log = self._logs / f"{name}-{seed}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **settings},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            self._running[process] = name
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                self._count(tally, line, settings)
        code = process.wait()
        del self._running[process]
        tally.runs += 1
        new = tally.failures[failed:]
        if code not in {0, 2, 5} and not new:  # 2: ended by us; 5: nothing was run
            tally.failures.append(repeated(settings, " ".join(words)))
        if len(tally.failures) > failed:
            self.say(f"{name}, seed {seed}: FAILED; all of it is in {log}\n{tail(log)}")
        else:
            self.say(f"{name}, seed {seed}: {tally.passed - before} passed")
        return code

    def _count(self, tally: Tally, line: str, settings: Mapping[str, str]) -> None:
        if seeds := re.search(r"(\d+) seeds from", line):
            tally.passed += int(seeds[1])
        test, _, rest = line.partition(" ")
        if "::" not in test or not test.startswith("tests/"):
            return
        if rest.startswith("PASSED"):
            tally.passed += 1
        elif rest.startswith(("FAILED", "ERROR")):
            tally.failures.append(repeated(settings, test))

    def _run_large(self) -> None:
        left = self.minutes * EXTRA
        for test, minutes in LARGE:
            if minutes > left:
                self.say(f"left out: {test} takes {minutes:g} min")
                continue
            left -= minutes
            self.say(f"large: {test}, about {minutes:g} min")
            self._pytest("large", 0, [test], {"FACETLINE_LARGE": "1"})

    def _end_all(self, *, all_: bool = False) -> None:
        """Let running tests end as by Ctrl-C; once, or all of them after that."""
        if self.stopped.is_set() and not all_:
            return
        self.stopped.set()
        for process, lane in list(self._running.items()):
            if lane == "simulation" and not all_:
                continue  # it ends by itself, after making a failing plan small
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        threading.Thread(target=self._kill_late, args=(list(self._running),), daemon=True).start()

    def _kill_late(self, told: list["subprocess.Popen[str]"]) -> None:
        time.sleep(ENDING_S)
        for process in told:
            if process.poll() is None:
                self.say("a run did not end when told to; it is killed")
                process.kill()


def simulation(seed: int, minutes: float) -> tuple[list[str], Mapping[str, str]]:
    """Return what runs seeds of the simulation, from this one on, for so long."""
    limits = ["--minutes", f"{max(minutes - MIN_MINUTES / 2, 0.1):.2f}", "--first-seed", str(seed)]
    return ["tests/simulation", "-s", "-k", "promises_hold", *limits], {}


def faults(seed: int, turn: int) -> tuple[list[str], Mapping[str, str]]:
    """Return what runs storms of a seed and a restored backup, and every third time all other fault tests."""
    settings = {"FACETLINE_FAULT_SEED": str(seed)}
    if turn % 3 == 1:
        return ["tests/faults", "--deselect", "tests/faults/test_bounded.py"], settings
    return ["tests/faults/test_storms.py", "tests/faults/test_restored.py"], settings


def repeated(settings: Mapping[str, str], test: str) -> str:
    """Return the command that repeats a test."""
    given = " ".join(f"{name}={value}" for name, value in settings.items())
    if first := re.fullmatch(r"tests/simulation/\S+\[(\d+)\]", test):  # its id is the seed that it began with
        return f".venv/bin/pytest tests/simulation -k promises_hold --first-seed {first[1]} --minutes 10"
    return f"{given} .venv/bin/pytest {test}".strip()


def tail(log: Path) -> str:
    """Return the end of a log."""
    return "\n".join(_last(log.read_text(errors="replace").splitlines()))


def _last(lines: list[str]) -> Iterator[str]:
    yield from (f"    {line}" for line in lines[-SHOWN_LINES:])


if __name__ == "__main__":
    sys.exit(Soak(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0).run())
