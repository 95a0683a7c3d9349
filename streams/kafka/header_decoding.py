"""Records as a consumer gets them, whatever a batch holds: no batch raises, and none holds up other partitions.

aiokafka 0.14 raises where it cannot decode a batch, and again at each new try: one batch would stop every partition of
a consumer permanently. Here a batch that cannot be decoded is one record instead, whose value is an `Undecodable` with
the batch's bytes; the reader of the record decides what becomes of it. Header names that are not UTF-8, which any C
client can send, are no reason for that: they are kept (as `surrogateescape`).
"""

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record import default_records, legacy_records, memory_records
from aiokafka.structs import ConsumerRecord

from facetline.streams.kafka import batch_payloads
from facetline.streams.wire.undecodable import Undecodable

MAGIC_MAX = 2
SPAN_MAX = 1_000_000
"""A damaged batch that claims more offsets than this is not believed."""


def install() -> None:
    """Have every consumer of this process read records in this way; to be called before one is made."""
    fetcher.MemoryRecords = _Records
    fetcher.PartitionRecords = _PartitionRecords


class _PartitionRecords(fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of one partition in one fetch; after a batch that fails the next one goes on."""

    next_fetch_offset: int

    def _unpack_records(self) -> Iterator[Any]:
        while True:
            try:
                yield from super()._unpack_records()
            except Exception as error:  # noqa: BLE001 (whatever a library raises on bytes from outside)
                data = self._records.current
                whole = _whole(data)
                if whole is None or self.next_fetch_offset < whole.next_offset:  # else all it has room for has come
                    yield self._undecodable(data, whole, error)
            else:
                return

    def _undecodable(self, data: memoryview, whole: Any, error: Exception) -> ConsumerRecord:
        """Return the record that stands for the rest of a batch, and pass over it."""
        at = self.next_fetch_offset
        end = _claimed_end(data, at) if whole is None else whole.next_offset
        value = Undecodable(data, str(error) or type(error).__name__, end=end, damaged=whole is None)
        self.next_fetch_offset = end
        stamp = getattr(whole, "max_timestamp", None)
        kind = None if whole is None else whole.timestamp_type
        tp = self._tp
        return ConsumerRecord(tp.topic, tp.partition, at, stamp, kind, None, value, None, -1, len(value), ())


def _whole(data: memoryview) -> Any:
    """Return the batch when its checksum fits, so that its header says what was sent; None when it is damaged."""
    magic_at = memory_records._MemoryRecordsPy.MAGIC_OFFSET  # noqa: SLF001 (aiokafka is pinned for this)
    try:
        magic = data[magic_at]
        if magic > MAGIC_MAX:  # the place of its checksum is unknown
            return None
        batch = (
            default_records.DefaultRecordBatch(data)
            if magic == MAGIC_MAX
            else legacy_records.LegacyRecordBatch(data, magic)
        )
        return batch if batch.validate_crc() else None
    except Exception:  # noqa: BLE001 (too short, or worse)
        return None


def _claimed_end(data: memoryview, at: int) -> int:
    """Return where to fetch next after a damaged batch; its own header is believed only within reason."""
    try:
        header = default_records._DefaultRecordBatchPy(data)  # noqa: SLF001
    except Exception:  # noqa: BLE001
        return at + 1
    end: int = header.next_offset
    return end if at < end <= at + SPAN_MAX else at + 1


class _Records(memory_records._MemoryRecordsPy):  # type: ignore[misc]  # noqa: SLF001
    """The batches of one fetch; `current` is the one in hand, as it came."""

    _next_slice: Any

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.current = memoryview(b"")
        if self._next_slice is None and data:
            # A broker always sends the first batch whole: with this length it cannot be right.
            self._next_slice = memoryview(data)

    def next_batch(self, *given: Any) -> Any:
        self.current = data = self._next_slice
        try:
            batch = super().next_batch(*given)
        except Exception:
            self._next_slice = None  # where the next one begins is not known
            raise
        if not isinstance(batch, default_records.DefaultRecordBatch):
            return batch
        if batch.magic > MAGIC_MAX:
            raise CorruptRecordException(f"record format {batch.magic} is not known")
        return _Batch(batch, data)


class _Batch:
    """A record batch that is unpacked within a bound, and goes on with a forgiving reader where the usual one fails."""

    def __init__(self, batch: Any, data: memoryview) -> None:
        self._batch = batch
        self._data: memoryview | bytearray = data
        self._read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> "_Batch":
        if self._batch.compression_type:
            self._data = batch_payloads.unpacked(memoryview(self._data))
            # The header's properties stay readable by `__getattr__`: they are the same in both.
            self._batch = default_records.DefaultRecordBatch(self._data)
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
