"""`backup` and `restore`: a SQLite store as one file, and back; PostgreSQL has tools of its own for it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from facetline.storage.backups import Content
    from facetline.streams.settings import Settings


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write the backup to.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Back up a SQLite store into one file, while other processes go on; it is checked before it gets its name."""

    async def work() -> int | None:
        from facetline.storage import backups

        path = _store_path(options.settings(config, folder))
        with output.Progress("pages", None) as progress:
            content = await backups.back_up(path, file, force=force, at=progress.at)
        if json_:
            output.result({"file": str(file), **_shown(content), "bytes": file.stat().st_size})
        else:
            output.text(f"{file}: {content.documents:,} documents, {file.stat().st_size:,} bytes, checked")
            output.note(f"it holds every scope's texts, and {content.tokens} tokens in force; keep it private")
        return None

    running.run(work, again="no backup was written; what was at that name is still there")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup of the store.")],
    revoke_tokens: Annotated[
        bool, typer.Option("--revoke-tokens", help="Revoke all tokens of the backup, before anyone can use them.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a store of another id.")] = False,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Put a backup in the place of a SQLite store that no process has open; the store from before is kept beside it."""

    async def work() -> int | None:
        from facetline.facets import errors, private_files
        from facetline.storage import backups

        settings = options.settings(config, folder)
        path = _store_path(settings)
        try:
            if settings.store_url is None:
                private_files.make_folder(path.parent)
        except OSError as error:
            raise errors.StoreUnavailable(f"the data folder {path.parent} cannot be used: {error}") from error
        with output.Progress("pages", None) as progress:
            done = await backups.restore(file, path, revoke_tokens=revoke_tokens, force=force, at=progress.at)
        kept = None if done.kept is None else str(done.kept)
        if json_:
            output.result({"file": str(file), **_shown(done.content), "kept": kept, "revoked": done.revoked})
            return None
        output.text(f"{path}: {done.content.documents:,} documents restored from {file}")
        if kept is not None:
            output.note(f"the store from before is {kept}; to go back: facetline restore {kept}")
        if done.revoked:
            output.note(f"{done.revoked} tokens revoked; make new ones: facetline token create")
        elif done.content.tokens:
            output.note(
                f"{done.content.tokens} tokens are in force again, also those revoked since the backup;"
                " to revoke all: facetline token revoke --all"
            )
        if done.revoked or not done.content.tokens:
            output.note("without a token, serve answers this machine with all rights; tokens made since are gone")
        return None

    running.run(work, again="nothing was restored; the store is as it was")


def _store_path(settings: "Settings") -> Path:
    """Return the database's file.

    Raises:
        FatalError: the store is PostgreSQL, or in memory.
    """
    from facetline.facets import errors
    from facetline.storage.db import sqlite_files

    path = sqlite_files.path_of(settings.store)
    if path is None:
        raise errors.FatalError(
            "this store is not a SQLite file: back PostgreSQL up with pg_dump and restore it with pg_restore;"
            " the steps are in docs/operate.md, Backup and restore"
        )
    return path


def _shown(content: "Content") -> dict[str, Any]:
    return {"store_id": content.store_id, "documents": content.documents, "tokens": content.tokens}
