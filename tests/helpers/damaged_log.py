"""Record batches as no broker would take them: changed in the file that a broker keeps its log in, under its feet."""

from collections.abc import Callable
from pathlib import Path

from aiokafka.record import default_records
from aiokafka.record._crc32c import crc as crc32c
from kafka_broker import Broker

HEADER = default_records.DefaultRecordBase.HEADER_STRUCT
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LENGTH_AT = 8


def change(
    broker: Broker, topic: str, partition: int, offset: int, edit: Callable[[bytearray], None], *, fit: bool
) -> None:
    """Edit the batch that holds `offset`, in place; `fit` makes its checksum right again.

    Raises:
        AssertionError: there is no such batch, or the edit changed its length.
    """
    (path,) = _segments(broker, topic, partition)
    data = bytearray(path.read_bytes())
    at = 0
    while at + HEADER.size <= len(data):
        base, length, *_rest = HEADER.unpack_from(data, at)
        end = at + 12 + length
        last = base + HEADER.unpack_from(data, at)[6]
        if base <= offset <= last:
            batch = data[at:end]
            edit(batch)
            assert len(batch) == end - at, "an edit in place"
            if fit:
                batch[CRC_AT : CRC_AT + 4] = crc32c(bytes(batch[ATTRIBUTES_AT:])).to_bytes(4)
            with path.open("r+b") as file:
                file.seek(at)
                file.write(batch)
            return
        at = end
    raise AssertionError(f"no batch with offset {offset} in {path}")


def _segments(broker: Broker, topic: str, partition: int) -> list[Path]:
    found = sorted(broker.folder.rglob(f"{topic}-{partition}/*.log"))
    assert len(found) == 1, found
    return found


def flip_last_byte(batch: bytearray) -> None:
    """Change what a record holds."""
    batch[-1] ^= 0xFF


def codec(number: int) -> Callable[[bytearray], None]:
    """Say that the batch is packed by this codec, which it is not."""

    def edit(batch: bytearray) -> None:
        batch[ATTRIBUTES_AT + 1] = (batch[ATTRIBUTES_AT + 1] & ~7) | number

    return edit


def magic(number: int) -> Callable[[bytearray], None]:
    """Say that the batch is of this format."""

    def edit(batch: bytearray) -> None:
        batch[MAGIC_AT] = number

    return edit


def cut_payload(batch: bytearray) -> None:
    """Overwrite the second half of what is packed with zeros."""
    half = HEADER.size + (len(batch) - HEADER.size) // 2
    batch[half:] = bytes(len(batch) - half)


def record_count(number: int) -> Callable[[bytearray], None]:
    """Say that the batch has so many records."""

    def edit(batch: bytearray) -> None:
        batch[HEADER.size - 4 : HEADER.size] = number.to_bytes(4)

    return edit
