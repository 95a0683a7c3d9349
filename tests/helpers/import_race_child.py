"""A fresh process in which a view and the embedded model start at the same moment, on a disk that is slow.

Run with a seed. The first module files of numpy are found up to 20 ms late, as from a cold disk: a wide window in which
imports meet. Prints one line for each thread that failed.
"""

import random
import sys
import threading
import time
from collections.abc import Callable

import searched

NATIVE = "onnxruntime.capi.onnxruntime_pybind11_state"
"""The file whose native code imports numpy, from inside out."""
SLOW = ("numpy._core", "numpy._utils", "numpy.version", "numpy.exceptions")
MEET_MAX_S = 10.0


class SlowDisk:
    """Finds nothing, late: the finders behind it do the work."""

    def __init__(self, seed: int) -> None:
        self.model_is_here, self.view_is_here = threading.Event(), threading.Event()
        self._random = random.Random(seed)  # noqa: S311 (a disk, no secret)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Take the time that a disk takes."""
        del path, target
        if name == NATIVE:
            self.model_is_here.set()
        if name == "numpy" or name.startswith(SLOW):
            time.sleep(self._random.random() * 0.02)


def model(disk: SlowDisk) -> None:
    """Load the embedded model and ask it, as the evaluator's thread does."""
    from facetline.evaluators.embedded import minilm

    disk.view_is_here.wait(MEET_MAX_S)
    try:
        loaded = minilm.shared()
        loaded.vector(loaded.tokens("my card was charged twice"))
    finally:
        disk.model_is_here.set()


def first_rows(disk: SlowDisk) -> None:
    """Give an open view its first rows while the model's native code is on its way to numpy."""
    opened = searched.view()
    disk.view_is_here.set()
    disk.model_is_here.wait(MEET_MAX_S)
    opened.apply([searched.record(1), searched.record(2)])
    opened.close()


def main() -> int:
    """Run both at once; return how many failed."""
    disk = SlowDisk(int(sys.argv[1]))
    sys.meta_path.insert(0, disk)
    failed: list[str] = []

    def run(work: Callable[[SlowDisk], None]) -> None:
        try:
            work(disk)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is what the test looks for)
            failed.append(f"{work.__name__}: {type(error).__name__}: {str(error)[:200]!r}")

    threads = [threading.Thread(target=run, args=(work,)) for work in (model, first_rows)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write("\n".join(failed))
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
