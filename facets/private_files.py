"""Files and folders that hold documents: made for their owner alone, never through a link, never a pipe by mistake."""

import contextlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_OTHERS = 0o077
_DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""What a shell passes for `<(…)`: a pipe that has its writer already."""
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def make_folder(folder: Path) -> bool:
    """Make a folder for its owner alone, or take other users' rights from an existing one; return whether it did that.

    A folder in which anybody may make files (`/tmp`), or from which a command runs (`--folder .`), belongs to more than
    the store and keeps its mode.

    Raises:
        OSError: it cannot be made.
    """
    try:
        folder.mkdir(FOLDER_MODE, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        shared = folder.stat().st_mode & stat.S_ISVTX or folder.resolve() in (here := Path.cwd(), *here.parents)
        return not shared and restrict(folder)
    return False


def restrict(path: Path) -> bool:
    """Take other users' rights from a file or folder; return whether there were any and this process may do it."""
    with contextlib.suppress(PermissionError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
            return True
    return False


def open_private(path: Path, flags: int) -> int:
    """Open a regular file that has this one name; a new one is its owner's alone. Returns the descriptor.

    Raises:
        OSError: it is a link, has a second name, or is no regular file; or it cannot be opened.
    """
    check_plain(path)
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise OSError(f"{path} has a second name (a hard link): move it away")


def check_plain(path: Path) -> bool:
    """Make sure that a path leads to a regular file, or nowhere; return whether there is one.

    Raises:
        OSError: it is a link or no regular file; the message says what it is.
    """
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found):
        raise OSError(f"{path} is {_kind(found)}, where a regular file is needed: move it away")
    return True


def open_regular(path: Path, *, pipes: bool = False) -> BinaryIO:
    """Open a file to read; a FIFO or a device, for which that could wait without end, is refused at once.

    `pipes`: what a shell passes for `<(…)` or as `/dev/stdin` is taken, too.

    Raises:
        OSError: it is no regular file (`strerror` says what it is), or it cannot be opened.
    """
    if pipes and str(path).startswith(_DESCRIPTORS):
        return path.open("rb")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        os.close(descriptor)
        raise OSError(0, f"it is {_kind(found)}, not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _kind(mode: int) -> str:
    return next((name for is_one, name in _KINDS if is_one(mode)), "no regular file")
