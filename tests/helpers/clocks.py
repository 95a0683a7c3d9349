"""A shift of the store's clock that processes share: a file that a test writes and every process of its site reads."""

from pathlib import Path


class FileClock:
    """Milliseconds to add to the store's clock, as the file says; 0 without one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> int:
        """Return the shift."""
        try:
            return int(self.path.read_text())
        except FileNotFoundError:
            return 0

    def shift(self, seconds: float) -> None:
        """Let so many more seconds have passed for the store: leases end, retries become due."""
        after = self() + int(seconds * 1000)
        beside = self.path.with_suffix(".new")
        beside.write_text(str(after))
        beside.replace(self.path)  # never half a number
