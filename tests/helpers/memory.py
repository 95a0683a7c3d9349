"""How much memory another process has in use."""

import os
from pathlib import Path

PAGES = Path("/proc/self/statm").exists()


def resident_mb(pid: int) -> float | None:
    """Return the resident memory of a process in megabytes; None where the system does not say (no /proc)."""
    if not PAGES:
        return None
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
