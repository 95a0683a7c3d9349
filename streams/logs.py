"""Logging, configured by the command line: text on a terminal, JSON lines otherwise, always on standard error.

What an entry says of documents, models and servers goes through `facets.display`, also that of libraries: a line of a
log is one line, and nothing in it acts on a terminal. JSON writes all but ASCII as its own escapes.

In a program that has us as a library what it configures holds; where it configures nothing, only warnings are written.
"""

import json
import logging
import os
import sys
from typing import Any

import structlog

from facetline.facets import display, masking


def configure(level: str, style: str) -> None:
    """Set up logging for this process; `style` is auto, text or json."""
    least = getattr(logging, level.upper())
    readable = style == "text" or (style == "auto" and sys.stderr.isatty())
    renderers: list[structlog.typing.Processor] = (
        [harmless, structlog.dev.ConsoleRenderer(colors=_colours())]
        if readable
        else [masked, structlog.processors.JSONRenderer(_json)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    for name in ("aiokafka", "faust", "mode"):  # their errors are mostly retries; what matters reaches our own log
        logging.getLogger(name).setLevel(logging.CRITICAL if least > logging.INFO else logging.WARNING)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Harmless("%(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=max(least, logging.WARNING), handlers=[handler])


def _colours() -> bool:
    """Say whether colours are welcome: on a terminal, unless NO_COLOR (no-color.org) or TERM=dumb refuse them."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def configure_default() -> None:
    """Write warnings to standard error, unless structlog is configured: its own default is all, on standard output."""
    if not structlog.is_configured():
        *processors, renderer = structlog.get_config()["processors"]
        structlog.configure(
            processors=[*processors, harmless, renderer],
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        )


def harmless(_logger: Any, _method: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Return an entry as it is shown: texts on one line, a traceback on several. A processor for text, not for JSON."""
    shown = masked(_logger, _method, entry)
    return {name: display.block(value) if name == "exception" else _shown(value) for name, value in shown.items()}


def masked(_logger: Any, _method: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Return an entry whose texts hold no secret. A processor."""
    return {
        name: masking.scrubbed(each) if isinstance(each, str) else masking.masked(each) for name, each in entry.items()
    }


def _shown(value: Any) -> Any:
    if isinstance(value, bool | int | float | None):
        return value
    return display.line(value if isinstance(value, str) else masking.scrubbed(repr(value)))


def _json(entry: Any, **options: Any) -> str:
    return json.dumps(entry, **options).replace("\x7f", "\\u007f")  # the one control that JSON's own escapes leave


class _Harmless(logging.Formatter):
    """Writes what libraries log, tracebacks included, as it is shown."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's text."""
        return display.block(masking.scrubbed(super().format(record)))
