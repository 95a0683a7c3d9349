"""What is asked of a process, judged as far as its parent can: sizes, numbers, and whether it is text."""

from collections.abc import Mapping
from typing import Any

from facetline.facets import errors
from facetline.facets.sql_sandbox import frames, limits


def request_of(text: str, params: Mapping[str, Any], limit: int | None, timeout_ms: int) -> dict[str, Any]:
    """Return what the process is asked, as far as it is known.

    Raises:
        InvalidQuery: what can be judged here is wrong.
    """
    if limit is not None and not 1 <= limit <= limits.LIMIT_MAX:
        raise errors.InvalidQuery(f"limit is {limit}; give 1 to {limits.LIMIT_MAX}")
    if not 1 <= timeout_ms <= limits.TIMEOUT_MS_MAX:
        raise errors.InvalidQuery(f"timeout_ms is {timeout_ms}; give 1 to {limits.TIMEOUT_MS_MAX}")
    if len(text) > limits.TEXT_BYTES_MAX or len(text.encode(errors="replace")) > limits.TEXT_BYTES_MAX:
        raise errors.SqlTooLarge(f"the statement is longer than {limits.TEXT_BYTES_MAX:,} bytes")
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise errors.SqlFailed("the statement holds a NUL or half a surrogate pair; send valid text")
    return {
        "sql": text,
        "params": _checked(params),
        "limit": 1 << 60 if limit is None else limit,
        "bytes": limits.STREAM_BYTES_MAX if limit is None else limits.REPLY_BYTES_MAX,
    }


def _checked(params: Mapping[str, Any]) -> dict[str, Any]:
    if len(params) > limits.PARAMS_MAX:
        raise errors.SqlTooLarge(f"{len(params)} parameters; at most {limits.PARAMS_MAX} are taken")
    try:
        size = len(frames.encode(dict(params)))
    except (TypeError, ValueError) as error:
        raise errors.SqlFailed(f"a parameter is no JSON value: {error}") from error
    if size > limits.PARAM_BYTES_MAX:
        raise errors.SqlTooLarge(f"the parameters have {size:,} bytes; at most {limits.PARAM_BYTES_MAX:,} are taken")
    return dict(params)
