"""Logs in a program that has us as a library.

Method: processes of their own, for structlog is set up once a process.
"""

import subprocess
import sys

import pytest

SAY = """
log = structlog.get_logger()
log.info("a_document_is_settled")
log.warning("the_store_is_away")
"""
OWN = "structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=sys.stdout))"


@pytest.mark.parametrize(
    ("before", "out", "err"), [("", [], ["the_store_is_away"]), (OWN, ["a_document", "the_store"], [])]
)
def test_what_a_program_says_of_logs_holds(before: str, out: list[str], err: list[str]):
    """Without a word of it warnings go to standard error; what it has configured stays as it is."""
    program = f"import structlog, sys\nfrom facetline.streams import logs\n{before}\nlogs.configure_default()\n{SAY}"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    for words, said in ((out, done.stdout), (err, done.stderr)):
        lines = said.splitlines()
        assert len(lines) == len(words)
        assert all(word in line for word, line in zip(words, lines, strict=True))
