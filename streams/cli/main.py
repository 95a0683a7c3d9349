"""The command `facetline`. Commands import what they need when they run, so that `--help` is quick."""

import sys
import traceback
from types import TracebackType
from typing import Any

import typer
from typer.core import TyperGroup

from facets import display, masking
from streams.cli import (
    backup,
    cost,
    demo,
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
    token,
)


class Commands(TyperGroup):
    """The commands; what is wrong with a call is said as it is shown, for it repeats arguments and names of files."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command and leave the process."""
        sys.excepthook = _say_traceback
        return super().main(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that a context names."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            error.message = display.block(masking.scrubbed(error.message))
            raise


def _say_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(display.block(masking.scrubbed(text)))


app = typer.Typer(
    cls=Commands,
    name="facetline",
    help="Ask fixed questions about every document when it is written; search by the answers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo", short_help="Tell the story in a minute; leaves nothing behind.")(demo.demo)
app.command("init", short_help="Write a facetline.toml to start from.")(project.init)
app.command("write", short_help="Write a document and have it asked about.")(documents.write)
app.command("import", cls=imports.ImportCommand, short_help="Write every record of an NDJSON, CSV or JSON file.")(
    imports.import_
)
app.command("get", short_help="Show a document: body, state, answers and where from.")(documents.get)
app.command("delete", short_help="Delete a document.")(documents.delete)
app.command("search")(documents.search)
app.command("sql", short_help="One SELECT over the answers; read-only.")(sql.sql)
app.command("export", short_help="Write the answers as Parquet files.")(export.export)
app.command("reindex", short_help="Ask again: what has no answers, the outdated, or all.")(jobs.reindex)
app.add_typer(jobs.app, name="jobs")
app.command("backup", short_help="Back up a SQLite store into one file.")(backup.backup)
app.command("restore", short_help="Put a backup in the store's place.")(backup.restore)
app.command("cost", short_help="What calls have used up, by day or collection.")(cost.cost)
app.command("evaluate", short_help="Measure an evaluator on labelled texts: right, sure, cost.")(evaluate.evaluate)
app.command("serve", short_help="Serve the API, the page and the agents' tools.")(serve.serve)
app.add_typer(token.app, name="token")
app.command("mcp", short_help="Serve one agent over standard input and output.")(mcp.mcp)
app.command("tools", short_help="Print the agents' tools, for MCP, OpenAI or Anthropic.")(mcp.tools)
app.command("worker", short_help="With Kafka: apply, answer and publish until stopped.")(kafka.worker)
app.add_typer(kafka.topics_app, name="topics")
app.add_typer(kafka.letters_app, name="dlq", short_help="Events that could not be applied: list, show, send again.")
app.command("record", short_help="With Kafka: print a topic's records, for replay.")(replay.record)
app.command("replay", short_help="Send recorded events again, into either runtime.")(replay.replay)
app.add_typer(
    project.collections_app, name="collections", short_help="Check the file's collections, or make them active."
)
app.command("doctor", short_help="Check everything that a run needs.")(project.doctor)
app.command("config")(project.config_)


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
