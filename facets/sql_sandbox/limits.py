"""How much a statement may take. The same on both sides: who asks refuses early, who runs it is not believed."""

TEXT_BYTES_MAX = 256 * 1024
"""Of one statement; a search's own SQL, whose filter has 64 KiB, stays below."""
PARAMS_MAX = 100
PARAM_BYTES_MAX = 256 * 1024
"""Of all parameters, as JSON."""
LIMIT_DEFAULT, LIMIT_MAX = 1_000, 100_000
"""Rows of one reply."""
REPLY_BYTES_MAX = 8 << 20
"""Of one reply's rows as JSON; what does not fit is cut off, and `truncated` says so."""
STREAM_BYTES_MAX = 256 << 20
"""The same of a stream, which is never held in memory."""
CELL_BYTES_MAX = 1 << 20
FRAME_BYTES = 128 * 1024
"""Rows are handed over when so many bytes of them have come together."""
FRAME_BYTES_MAX = 8 << 20
"""Above what FRAME_BYTES and one more row can be; a process that announces more is stopped."""
ROW_BYTES_MAX = 4 << 20
TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX = 5_000, 60_000
STOP_S = 0.5
"""What a process gets beyond a statement's time to end it by itself, before it is killed."""
MEMORY_MB = 512
"""What DuckDB may use in one process."""
BESIDE_MB = 1_024
"""Address space beside that: Python, DuckDB's own code, and what DuckDB does not count (a single large text).

Of memory really in use half of it is granted; where there is no limit of address space, that alone holds.
"""
NESTING_MAX = 200
"""Levels of a statement's syntax tree in which a SELECT can stand inside of others."""
