"""How much memory this process really has, now."""

import contextlib
import resource
import sys
from pathlib import Path

_PAGES = Path("/proc/self/statm")


def bytes_used() -> int:
    """Return the bytes of memory in use; where the system shows only the peak, that."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_PAGES.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
