"""The command `facetline`. Commands import what they need when they run, so that `--help` is quick."""

import typer

from streams.cli import demo, documents, imports, jobs, kafka, project

app = typer.Typer(
    name="facetline",
    help="Ask fixed questions about every document when it is written; search by the answers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.command("init")(project.init)
app.command("write")(documents.write)
app.command("import")(imports.import_)
app.command("get")(documents.get)
app.command("delete")(documents.delete)
app.command("search")(documents.search)
app.command("reindex")(jobs.reindex)
app.add_typer(jobs.app, name="jobs")
app.command("worker")(kafka.worker)
app.add_typer(kafka.topics_app, name="topics")
app.add_typer(kafka.letters_app, name="dlq")
app.add_typer(project.collections_app, name="collections")
app.command("doctor")(project.doctor)
app.command("config")(project.config_)


def main() -> None:
    """Run the command line."""
    app()
