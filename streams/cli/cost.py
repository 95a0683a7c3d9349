"""`cost`: what calls have used up, by day, collection, evaluator or model."""

from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from facetline.streams.cli import options, output, running

if TYPE_CHECKING:
    from facetline.storage.db.engine import Store
    from facetline.storage.usage_ledger import Spent

By = Literal["day", "collection", "evaluator", "model"]
HEADINGS = ("calls", "input tokens", "output tokens", "cost")


def cost(
    collection: Annotated[str | None, typer.Option("--collection", help="Only calls about this collection.")] = None,
    evaluator: Annotated[str | None, typer.Option("--evaluator", help="Only calls of this evaluator.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="The first day (UTC), such as 2026-11-30.")] = None,
    by: Annotated[By, typer.Option("--by", help="What the sums are grouped by.")] = "day",
    json_: options.Json = False,
    config: options.Config = None,
    folder: options.Folder = None,
) -> None:
    """Show what calls have used up: calls, tokens and dollars, as their providers reported them."""
    first = None if since is None else _day(since)

    async def work() -> int | None:
        from functools import reduce
        from operator import add

        from facetline.storage import usage_ledger
        from facetline.streams import wiring

        async with wiring.open_store(options.settings(config, folder), create=False) as store:
            await _check(store, collection, evaluator)
            found = await store.read(usage_ledger.totals, by, collection=collection, evaluator=evaluator, since=first)
        if json_:
            for what, each in found:
                output.result({by: what, **_fields(each)})
            return None
        if not found:
            output.note("no call is in the ledger, of those that were asked for")
            return None
        total = reduce(add, (each for _, each in found), usage_ledger.Spent())
        rows = [(by, *HEADINGS), *((what, *_cells(each)) for what, each in found), ("total", *_cells(total))]
        output.table(rows)
        if total.unpriced_calls:
            output.note(f"the cost of {total.unpriced_calls} of {total.calls} calls is unknown, and not in the sums")
        return None

    running.run(work)


async def _check(store: "Store", collection: str | None, evaluator: str | None) -> None:
    """Refuse names that neither an active definition nor the ledger has.

    Raises:
        InvalidQuery: naming those that there are.
    """
    from facetline.facets import errors
    from facetline.storage import definitions, usage_ledger

    charged = await store.read(usage_ledger.by_collection)
    _, active = await store.read(definitions.active)
    collections = {*active.by_name, *(name for name, _ in charged)}
    evaluators = {*(each.evaluator for each in active.by_name.values()), *(name for _, name in charged)}
    for kind, name, known in (("collection", collection, collections), ("evaluator", evaluator, evaluators)):
        if name is not None and name not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "there is none yet"
            raise errors.InvalidQuery(f"no {kind} '{name}'{errors.nearest(name, known)}; {there}", allowed=known)


def _fields(spent: "Spent") -> dict[str, Any]:
    return {
        "calls": spent.calls,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": spent.known_usd,
        "calls_without_cost": spent.unpriced_calls,
    }


def _cells(spent: "Spent") -> tuple[str, str, str, str]:
    known = "unknown" if spent.known_usd is None else f"${spent.known_usd:.6f}"
    more = f" + {spent.unpriced_calls} unknown" if spent.unpriced_calls and spent.known_usd is not None else ""
    return f"{spent.calls:,}", f"{spent.input_tokens:,}", f"{spent.output_tokens:,}", known + more


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no day; write it like 2026-11-30") from None
