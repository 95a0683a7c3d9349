"""Records whose header names are not UTF-8: read like any other, their odd bytes kept (as `surrogateescape`).

aiokafka 0.14 raises when it meets one, and again at each new try: one such record, which any C client can send, would
hold up its partition for good. Here the batch that it stands in is read again by a forgiving reader. Everything else
is read by aiokafka's own.
"""

from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record import default_records, memory_records


def install() -> None:
    """Have every consumer of this process read records in this way; to be called before one is made."""
    fetcher.MemoryRecords = _Records


class _Records(memory_records._MemoryRecordsPy):  # type: ignore[misc]  # noqa: SLF001 (aiokafka is pinned for this)
    def next_batch(self, *given: Any) -> Any:
        data = self._next_slice
        batch = super().next_batch(*given)
        return _Batch(batch, data) if isinstance(batch, default_records.DefaultRecordBatch) else batch


class _Batch:
    """A record batch that goes on with the forgiving reader where the usual one fails."""

    def __init__(self, batch: Any, data: Any) -> None:
        self._batch = batch
        self._data = data
        self._read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> "_Batch":
        iter(self._batch)
        return self

    def __next__(self) -> Any:
        try:
            record = next(self._batch)
        except (UnicodeDecodeError, CorruptRecordException):
            if isinstance(self._batch, _ForgivingBatch):
                raise
            self._batch = iter(_ForgivingBatch(self._data))
            for _ in range(self._read):
                next(self._batch)
            record = next(self._batch)
        self._read += 1
        return record


class _ForgivingBatch(default_records._DefaultRecordBatchPy):  # type: ignore[misc]  # noqa: SLF001
    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer: bytearray = _Buffer(self._buffer)


class _Buffer(bytearray):
    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        return _Slice(part) if isinstance(key, slice) else part


class _Slice(bytearray):
    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002 (bytearray's shape)
        return super().decode(encoding, "surrogateescape")
