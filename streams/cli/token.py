"""`token`: who may ask over HTTP. Works on the store itself, wherever that is."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from facetline.storage.credentials import Credential

app = typer.Typer(help="Tokens for `serve`: make one, list them, revoke one.", no_args_is_help=True)
NAME_CHARS_MAX = 80


@app.command("create", short_help="Make a token and show it, once.")
def create(
    rights: Annotated[str, typer.Option("--rights", help="Any of read, write, admin and sql, with commas.")] = "read",
    scope: Annotated[
        str | None, typer.Option("--scope", help="It sees this scope of scoped collections alone.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What it is for, for `token list`.")] = "",
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Make a token and show it, once: only its hash is stored."""
    wanted = _rights(rights, scope)
    _check_scope(scope)
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise typer.BadParameter(f"--name is at most {NAME_CHARS_MAX} characters that can be printed")

    async def work() -> int | None:
        import uuid

        from facetline.storage import credentials
        from facetline.streams import wiring

        token = credentials.new_token()
        settings = options.settings(config, folder)
        # Without a project this is most likely the wrong folder: the token would open nothing.
        async with wiring.open_store(settings, create=settings.config.exists()) as store:
            made = await store.write(
                credentials.create, uuid.uuid4().hex[:12], token, name=name, rights=wanted, scope=scope
            )
        if json_:
            output.result({**_shown(made), "token": token})
        else:
            output.text(token)
            output.note(f"token {made.id} ({_described(made)}); it is not shown again")
        return None

    running.run(work)


@app.command("list")
def list_(
    all_: Annotated[bool, typer.Option("--all", help="The revoked ones too.")] = False,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """List tokens: id, rights, scope, name and when; never the tokens themselves."""

    async def work() -> int | None:
        from facetline.storage import credentials
        from facetline.storage.db import json_rows
        from facetline.streams import wiring

        async with wiring.open_store(options.settings(config, folder), create=False) as store:
            found = [each for each in await store.read(credentials.all) if all_ or each.revoked_ms is None]
        if json_:
            for each in found:
                output.result(_shown(each))
            return None
        output.table(
            (
                each.id,
                _described(each),
                json_rows.timestamp(each.created_ms),
                "revoked" if each.revoked_ms else "",
                each.name,
            )
            for each in found
        )
        return None

    running.run(work)


@app.command("revoke")
def revoke(
    id_: Annotated[str | None, typer.Argument(metavar="ID", help="As `token list` shows it.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every token, as after a restore.")] = False,
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Revoke a token, or all of them; serving processes stop accepting it within a second."""
    if (id_ is None) != all_:
        raise typer.BadParameter("give the ID of one token, or --all")

    async def work() -> int | None:
        from facetline.storage import credentials
        from facetline.streams import wiring

        async with wiring.open_store(options.settings(config, folder), create=False) as store:
            if id_ is None:
                count = await store.write(credentials.revoke_all)
            else:
                gone = await store.write(credentials.revoke, id_)
        if id_ is None:
            output.result({"revoked": count}) if json_ else output.text(f"{count} tokens revoked")
        elif json_:
            output.result(_shown(gone))
        else:
            output.text(f"{gone.id} revoked")
        return None

    running.run(work)


def _rights(text: str, scope: str | None) -> tuple[str, ...]:
    from facetline.facets import errors
    from facetline.facets.backend import RIGHTS

    given = [part.strip() for part in text.split(",") if part.strip()]
    for right in given:
        if right not in RIGHTS:
            hint = errors.nearest(right[:80], RIGHTS)
            raise typer.BadParameter(f"there is no right {right[:80]!r}{hint}; there are {', '.join(RIGHTS)}")
    if not given:
        raise typer.BadParameter(f"--rights is empty; name some of {', '.join(RIGHTS)}")
    if scope is not None and {"admin", "sql"} & set(given):
        raise typer.BadParameter("a token with a scope has read and write at most: admin and sql see all scopes")
    return tuple(right for right in RIGHTS if right in given)


def _check_scope(scope: str | None) -> None:
    from facetline.facets import documents, errors

    if scope is None:
        return
    try:
        if documents.parse_uri(f"@{scope}/x").scope == scope:
            return
        problem = "it holds a '/'"
    except errors.InvalidEvent as error:
        problem = error.message
    raise typer.BadParameter(f"--scope {scope[:80]!r} is none: {problem}")


def _described(found: "Credential") -> str:
    scope = "" if found.scope is None else f", scope {found.scope}"
    return f"{' '.join(found.rights)}{scope}"


def _shown(found: "Credential") -> dict[str, Any]:
    from facetline.storage.db import json_rows

    revoked = None if found.revoked_ms is None else json_rows.timestamp(found.revoked_ms)
    return {
        "id": found.id,
        "name": found.name,
        "rights": list(found.rights),
        "scope": found.scope,
        "created_at": json_rows.timestamp(found.created_ms),
        "revoked_at": revoked,
    }
