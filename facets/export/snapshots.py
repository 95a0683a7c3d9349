"""A folder of snapshots: readers open `current`, which is always a whole one, the old or the new.

    DIR/current -> 20261130T141500.123456Z
    DIR/20261130T141500.123456Z/manifest.json, tickets.parquet, answers.parquet

A snapshot is made beside the others under a hidden name, renamed, and then `current`, a symbolic link, is renamed over
the one before. The snapshot before is kept for who has it open; older ones go. One writer at a time, by a lock of the
operating system; what a killed one left behind is removed by the next.
"""

import contextlib
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from facetline.facets import errors, private_files
from facetline.facets.export import parquet

CURRENT = "current"
KEPT = 1
"""Snapshots that stay beside the current one."""
_LOCK = ".lock"
_MAKING = ".making-"
_SHARED = 0o755
"""Rights that a snapshot takes from its folder; only its owner writes to it."""
_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}Z")


@contextlib.contextmanager
def making(parent: Path, made_at: datetime) -> Iterator[Path]:
    """Hand out an empty folder to be filled; at the end it becomes the current snapshot, on failure it goes.

    Raises:
        ExportFailed: the folder cannot be used, or another process is writing there.
    """
    folder, lock = _open(parent)
    try:
        _sweep(folder)
        with parquet.writing(folder):
            new = folder / f"{_MAKING}{uuid.uuid4().hex}"
            new.mkdir(private_files.FOLDER_MODE)
        try:
            yield new
            with parquet.writing(folder):
                _publish(folder, new, made_at.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ"))
        finally:
            shutil.rmtree(new, ignore_errors=True)  # nothing of that name is left when it was published
        _retire(folder)
    finally:
        os.close(lock)


def _open(parent: Path) -> tuple[Path, int]:
    try:
        parent.mkdir(private_files.FOLDER_MODE, parents=True, exist_ok=True)
        folder = parent.resolve()
        lock = private_files.open_private(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    except FileExistsError as error:
        raise errors.ExportFailed(f"{parent} is not a folder; name one for the snapshots") from error
    except NotADirectoryError as error:
        raise errors.ExportFailed(f"{parent} is inside of what is not a folder") from error
    except OSError as error:
        raise errors.ExportFailed(f"{parent} cannot be written: {error.strerror or error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise errors.ExportFailed(
            f"another export is writing to {parent}; wait for it, or use another folder"
        ) from error
    return folder, lock


def _publish(folder: Path, new: Path, name: str) -> None:
    _share(new, folder.stat().st_mode & _SHARED)
    target = folder / name
    new.rename(target)
    link = folder / f"{_MAKING}{name}"
    link.symlink_to(name, target_is_directory=True)
    link.replace(folder / CURRENT)
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _share(new: Path, mode: int) -> None:
    """Give a snapshot the mode of the folder that it stands in: who may read there decides who may read it."""
    for path in new.iterdir():
        path.chmod(mode & ~0o111)
    new.chmod(mode)


def _retire(folder: Path) -> None:
    current = (folder / CURRENT).resolve().name
    # By their own age, not by their names: a clock may have been set back.
    others = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.name != current]
    others.sort(key=lambda path: path.stat().st_mtime_ns)
    for path in others[: len(others) - KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what was left behind half made; no other process writes here, by the lock."""
    for path in folder.glob(f"{_MAKING}*"):
        if path.is_symlink():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)
