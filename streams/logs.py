"""Logging, configured by the command line: text on a terminal, JSON lines otherwise, always on standard error.

In a program that has us as a library what it configures holds; where it configures nothing, only warnings are written.
"""

import logging
import sys

import structlog


def configure(level: str, style: str) -> None:
    """Set up logging for this process; `style` is auto, text or json."""
    least = getattr(logging, level.upper())
    readable = style == "text" or (style == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    for name in ("aiokafka", "faust", "mode"):  # their errors are mostly retries; what matters reaches our own log
        logging.getLogger(name).setLevel(logging.CRITICAL if least > logging.INFO else logging.WARNING)
    logging.basicConfig(
        level=max(least, logging.WARNING), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )


def configure_default() -> None:
    """Write warnings to standard error, unless structlog is configured: its own default is all, on standard output."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
        )
