"""The command `facetline`. Commands import what they need when they run, so that `--help` is quick."""

import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from facetline.facets import display, masking
from facetline.streams.cli import (
    backup,
    cost,
    demo,
    dlq,
    documents,
    evaluate,
    export,
    extras,
    imports,
    jobs,
    kafka,
    mcp,
    output,
    project,
    replay,
    running,
    serve,
    sql,
    texts,
    token,
)
from facetline.streams.cli.grouped_help import OPERATE, SEARCH, START, GroupedHelp


class Commands(GroupedHelp):
    """The commands; errors of a call are masked, for they repeat arguments and names of files."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command and leave the process."""
        sys.excepthook = _print_traceback
        return super().main(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that a context names."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            error.message = display.block(masking.scrubbed(error.message))
            raise


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(display.block(masking.scrubbed(text)))


app = typer.Typer(
    cls=Commands,
    name="facetline",
    help="Ask fixed questions about every document when it is written; search by the answers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        output.text(f"facetline {metadata.version('facetline')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    del version


def _command(
    group: str,
    name: str,
    function: Callable[..., None],
    short_help: str | None = None,
    cls: type[TyperCommand] | None = None,
) -> None:
    app.command(name, cls=cls, short_help=short_help, rich_help_panel=group)(function)


def _commands(group: str, name: str, below: typer.Typer, short_help: str | None = None) -> None:
    app.add_typer(below, name=name, short_help=short_help, rich_help_panel=group)


_command(START, "demo", demo.demo, "Tell the story in a minute; leaves nothing behind.")
_command(START, "init", project.init, "Write a facetline.toml to start from.")
_command(START, "write", documents.write, "Write a document and have it asked about.")
_command(
    START, "import", imports.import_, "Write every record of an NDJSON, CSV or JSON file.", cls=imports.ImportCommand
)
_command(START, "delete", documents.delete, "Delete a document.")
_command(START, "evaluate", evaluate.evaluate, "Measure an evaluator on labelled texts: right, sure, cost.")
_command(SEARCH, "search", documents.search)
_command(SEARCH, "grep", texts.grep, "Find lines that match a pattern.")
_command(SEARCH, "glob", texts.glob, "List uris that match a pattern.")
_command(SEARCH, "get", documents.get, "Show a document: body, state, answers and where from.")
_command(SEARCH, "sql", sql.sql, "One SELECT over the answers; read-only.")
_command(SEARCH, "export", export.export, "Write the answers as Parquet files.")
_command(SEARCH, "serve", serve.serve, "Serve the API, the page and the agents' tools.")
_command(SEARCH, "mcp", mcp.mcp, "Serve one agent over standard input and output.")
_command(SEARCH, "tools", mcp.tools, "Print the agents' tools, for MCP, OpenAI or Anthropic.")
_commands(OPERATE, "collections", project.collections_app, "List collections, check the file's, or make them active.")
_command(OPERATE, "doctor", project.doctor, "Check everything that a run needs.")
_command(OPERATE, "config", project.config_)
_command(OPERATE, "reindex", jobs.reindex, "Ask again: what has no answers, the outdated, or all.")
_commands(OPERATE, "jobs", jobs.app)
_command(OPERATE, "backup", backup.backup, "Back up a SQLite store into one file.")
_command(OPERATE, "restore", backup.restore, "Put a backup in the store's place.")
_command(OPERATE, "cost", cost.cost, "What calls have used up, by day or collection.")
_commands(OPERATE, "token", token.app)
_command(OPERATE, "worker", kafka.worker, "With Kafka: apply, answer and publish until stopped.")
_commands(OPERATE, "topics", kafka.topics_app)
_commands(OPERATE, "dlq", dlq.app, "Events that could not be applied: show, send again, discard.")
_command(OPERATE, "record", replay.record, "With Kafka: print a topic's records, for replay.")
_command(OPERATE, "replay", replay.replay, "Send recorded events again, into either runtime.")


def main() -> None:
    """Run the command line."""
    try:
        app()
    except ModuleNotFoundError as error:
        advice = extras.advice(error)
        if advice is None:
            raise
        output.error(advice)
        sys.exit(running.FAILED)
