"""Recorded embeddings: lines of a file of recorded calls, one for each text.

Vectors stand in base64, as they are stored; the text stands in plain words.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from facetline.evaluators.embedders.contract import Purpose, Vectors
from facetline.evaluators.recorded import recordings
from facetline.evaluators.recorded.recordings import OF_EMBEDDINGS, Asker, InvalidRecording, Problem

LINE_KEYS = ("key", "text", "purpose", OF_EMBEDDINGS, "model", "vectors", "dropped", "latency_ms", "error")
PURPOSES = ("passage", "query")


@dataclass(frozen=True, slots=True)
class EmbeddingCall:
    """One text: with `vectors`, or with the `error` that its call ended in. `model` is the id that was reported."""

    key: str
    text: str
    purpose: Purpose
    asker: Asker
    latency_ms: float
    model: str
    vectors: Vectors | None = None
    dropped: int = 0
    error: Problem | None = None


def key_of(fingerprint: str, purpose: Purpose, text: str) -> str:
    """Return the hash of everything that a text's vectors depend on, in hexadecimal."""
    depends_on = json.dumps([fingerprint, purpose, text], separators=(",", ":"))
    return hashlib.sha256(depends_on.encode()).hexdigest()


def encode(call: EmbeddingCall) -> str:
    """Return the line, without its end."""
    fields: dict[str, Any] = {
        "key": call.key,
        "text": call.text,
        "purpose": call.purpose,
        OF_EMBEDDINGS: {
            "kind": call.asker.kind,
            "model": call.asker.model,
            "fingerprint": call.asker.fingerprint,
        },
        "model": call.model,
    }
    if call.vectors is not None:
        fields["vectors"] = {
            "dimensions": call.vectors.dimensions,
            "windows": call.vectors.windows,
            "data": base64.b64encode(call.vectors.data).decode(),
            "scales": base64.b64encode(call.vectors.scales).decode(),
        }
    if call.dropped:
        fields["dropped"] = call.dropped
    fields["latency_ms"] = round(call.latency_ms, 3)
    if call.error is not None:
        fields["error"] = {"reason": call.error.reason, "message": recordings.public(call.error.message)}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def decode(line: bytes) -> EmbeddingCall | None:
    """Return the embedding that a line holds, None for one about an evaluator's call.

    Raises:
        InvalidRecording: the line is damaged, or shows another text than the one that it is found by.
    """
    data = recordings.parsed(line)
    if OF_EMBEDDINGS not in data:
        return None
    unknown = [name for name in data if name not in LINE_KEYS]
    if unknown:
        raise InvalidRecording(f"unknown member '{unknown[0][:80]}'; an embedding has {', '.join(LINE_KEYS)}")
    key, text, purpose = (recordings.part(data, name, str) for name in ("key", "text", "purpose"))
    if purpose not in PURPOSES:
        raise InvalidRecording("'purpose' is 'passage' or 'query'")
    asker = recordings.asker_of(data, OF_EMBEDDINGS)
    if key != key_of(asker.fingerprint, cast("Purpose", purpose), text):
        raise InvalidRecording("its text, purpose or fingerprint is not the one that was embedded")
    return EmbeddingCall(
        key=key,
        text=text,
        purpose=cast("Purpose", purpose),
        asker=asker,
        latency_ms=recordings.milliseconds(data),
        model=recordings.part(data, "model", str),
        vectors=_vectors(data),
        dropped=recordings.part({"dropped": 0, **data}, "dropped", int),
        error=recordings.problem_of(data, "vectors"),
    )


def read(path: Path) -> dict[str, EmbeddingCall]:
    """Return the embeddings of a file by their keys, of equal ones the last; a missing file holds none.

    Raises:
        InvalidRecording: the message names the file and the line.
        OSError: the file cannot be read.
    """
    return {call.key: call for call in recordings.decoded(path, decode)}


def _vectors(fields: Mapping[str, Any]) -> Vectors | None:
    if "vectors" not in fields:
        return None
    given = recordings.part(fields, "vectors", dict)
    try:
        data, scales = (
            base64.b64decode(recordings.part(given, name, str), validate=True) for name in ("data", "scales")
        )
        return Vectors(recordings.part(given, "dimensions", int), recordings.part(given, "windows", int), data, scales)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, InvalidRecording):
            raise
        raise InvalidRecording(f"its vectors are damaged ({error})") from error
