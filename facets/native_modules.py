"""Imports packages with native code, one thread at a time: two threads that import one at once can both fail.

A C extension imports its module from inside (`numpy._core._multiarray_umath`), holding that name while it waits for the
package; the thread that imports the package then meets the held name. Python breaks the deadlock by handing out a half
made module ("cannot import name … from partially initialized module"), and numpy cannot be imported again in that
process. What a thread of ours needs is therefore loaded here before it goes on, and nowhere at the start of a file:
`facetline --help` needs none of it.
"""

import importlib
import threading

VIEW = ("numpy", "duckdb")
"""What a view needs; numpy is first in every list, since the others' native code imports it."""

_one_at_a_time = threading.Lock()


def load(*names: str) -> None:
    """Import these packages unless they are imported already; safe in any thread.

    Raises:
        ImportError: one is missing or broken.
    """
    with _one_at_a_time:
        for name in names:
            importlib.import_module(name)
