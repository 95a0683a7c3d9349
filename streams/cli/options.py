"""Options that several commands share, and the settings they lead to."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from facetline.streams.settings import Settings

Config = Annotated[
    Path | None, typer.Option("--config", help="File with collections and evaluators.", show_default=False)
]
Folder = Annotated[Path | None, typer.Option("--folder", help="Data folder of the local runtime.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
Scope = Annotated[str | None, typer.Option("--scope", help="Only this scope of a scoped collection.")]
Filter = Annotated[
    str | None, typer.Option("--filter", help='CQL2 text, such as "severity >= 1 AND state_title IS NULL".')
]
Fields = Annotated[
    Literal["body"] | None,
    typer.Option("--fields", help="body: with the text of each document.", show_default=False),
]
Query = Annotated[
    str | None, typer.Option("-q", "--query", help='Words to look for: card "top up" -refund trans*; best first.')
]
Mode = Annotated[
    Literal["keyword", "vector", "hybrid"] | None,
    typer.Option("--mode", help="By words, by meaning, or both.", show_default=False),
]
Words = Annotated[Literal["any", "all"], typer.Option("--words", help="Documents with any or all words.")]
Exact = Annotated[bool, typer.Option("--exact", help="Words as written: no stems, no corrected typos.")]
MinScore = Annotated[float | None, typer.Option("--min-score", help="0 to 1, inclusive.")]
Grep = Annotated[str | None, typer.Option("--grep", help="Only documents with a line that matches (RE2).")]
IgnoreCase = Annotated[bool, typer.Option("--ignore-case", help="For --grep.")]
Highlight = Annotated[bool, typer.Option("--highlight", help="With the line that has most of the words.")]
Glob = Annotated[
    str | None, typer.Option("--glob", help="Only keys or paths that match, such as '2026-*' or 'docs/**/*.md'.")
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="Between CSV fields: ';', '|', tab …; default: found out.")
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Such as cp1252; default: by the byte order mark, else UTF-8.")
]
IgnoreColumns = Annotated[
    list[str] | None, typer.Option("--ignore-columns", help="A CSV column to leave out; again for each.")
]


def named_columns(pairs: list[str], option: str, what: str = "QUESTION", value: str = "COLUMN") -> dict[str, str]:
    """Return the columns (or formats) by question or field of the state that `option` names as QUESTION=COLUMN."""
    found = {}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not equals or not name or not column:
            raise typer.BadParameter(f"{option}: {pair!r} is not {what}={value}")
        found[name] = column
    return found


def settings(config: Path | None, folder: Path | None) -> "Settings":
    """Return the settings in force and set up logging by them.

    Raises:
        InvalidSettings: naming the setting and where it can be set.
    """
    from facetline.streams import logs  # pydantic and structlog, only once a command really runs
    from facetline.streams.settings import load_settings

    found = load_settings(config=config, data_folder=folder)
    logs.configure(found.log_level, found.log_format)
    return found
