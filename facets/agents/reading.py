"""Read-only tools: query the backend and render its reply."""

from collections.abc import Mapping, Sequence
from typing import Any

from facetline.facets import display, documents, errors
from facetline.facets.agents import descriptions, rendering
from facetline.facets.agents.backends import ToolBackend
from facetline.facets.agents.replies import ToolReply
from facetline.facets.agents.tools import ENUM_MAX, LIMIT_DEFAULT, VALUES_DEFAULT, Tool
from facetline.facets.questions import Choice

BUCKETS_ASKED = 1_000
"""More than any question has, so that all buckets are returned."""


async def list_collections(backend: ToolBackend, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """List the collections with their questions and counts."""
    del tool, given
    found = [display.deep(_collection(each)) for each in await backend.collections()]
    shown = rendering.that_fit(found, rendering.RESULT_BYTES_MAX)
    parts = [_collection_text(each) for each in shown] or [
        "No collection is readable for agents; set llm_readable in its definition."
    ]
    if len(shown) < len(found):
        parts.append(f"and {len(found) - len(shown)} more collections, each with its search tool")
    text = rendering.bounded("\n\n".join(parts), "list_facets shows one question at a time")
    return ToolReply(text, {"collections": shown})


def _collection(found: Mapping[str, Any]) -> dict[str, Any]:
    questions = {name: _question(question) for name, question in found["questions"].items()}
    shown = {name: found[name] for name in ("name", "pattern", "scoped", "counts") if name in found}
    return {**shown, "questions": questions}


def _question(question: Mapping[str, Any]) -> dict[str, Any]:
    values = list(question.get("options") or question.get("levels") or [True, False])
    shown = {"type": question["type"], "ask": descriptions.clipped(question["ask"], descriptions.ASK_CHARS_MAX)}
    more = {"more_values": len(values) - ENUM_MAX} if len(values) > ENUM_MAX else {}
    return {**shown, "values": values[:ENUM_MAX], **more}


def _collection_text(found: Mapping[str, Any]) -> str:
    counts = "  ".join(f"{name} {count}" for name, count in (found.get("counts") or {}).items() if count)
    scoped = " (with scopes: @scope/…)" if found["scoped"] else ""
    lines = [f"{found['name']}: documents {found['pattern']}{scoped}; {counts or 'none yet'}"]
    for name, question in found["questions"].items():
        listed = ", ".join(_value(value) for value in question["values"])
        more = f" and {question['more_values']} more" if "more_values" in question else ""
        lines.append(f"  {name} ({question['type']}): {question['ask']} [{listed}{more}]")
    return "\n".join(lines)


async def search(backend: ToolBackend, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Search a collection; a page that is too long is requested again with fewer hits, so that its cursor is right."""
    definitions = await backend.definitions()
    questions = definitions.by_name[tool.collection or ""].questions
    facets = {name: value for name, value in given.items() if isinstance(questions.get(name), Choice)}
    fields = {name: value for name, value in given.items() if name not in facets}
    fields |= {"collection": tool.collection, "facets": facets}
    limit = int(fields.pop("limit", LIMIT_DEFAULT))
    while True:
        try:
            reply = await backend.search({**fields, "limit": limit})
        except errors.UnknownValue as error:
            raise _with_lookup(error, tool, facets) from error
        made = _hits(reply, tuple(facets))
        if limit == 1 or max(len(made.text.encode()), rendering.size_of(made.content)) <= rendering.RESULT_BYTES_MAX:
            break
        limit = max(1, min(limit, len(reply["hits"])) // 2)
    asked = int(given.get("limit", LIMIT_DEFAULT))
    note = f"\n(shortened to {limit} of {asked} hits because of their length)" if limit < asked else ""
    return ToolReply(rendering.bounded(made.text + note, "select more options or use a narrower filter"), made.content)


def _with_lookup(error: errors.UnknownValue, tool: Tool, facets: Mapping[str, Any]) -> errors.UnknownValue:
    """Return the error with the way to look up options if the tool's schema does not list them."""
    name = next((name for name in facets if not tool.by_name[name].values), None)
    if name is None:
        return error
    way = f"; list_facets with collection='{tool.collection}', facet='{name}' and contains='…' looks up others"
    return errors.UnknownValue(error.message + way, allowed=error.allowed)


def _hits(reply: Mapping[str, Any], first: Sequence[str]) -> ToolReply:
    shown = [rendering.hit(found, first) for found in reply["hits"]]
    total, cursor, pending = reply["total"], reply["next_cursor"], reply["as_of"]["pending"]
    page = f"next_cursor={cursor}" if cursor else "no more pages"
    waiting = f"; {pending} documents wait for answers and may be missing here" if pending else ""
    text = "\n".join([*(rendering.hit_line(each) for each in shown), f"{total} total, {page}{waiting}"])
    return ToolReply(text, {"hits": shown, "total": total, "next_cursor": cursor, "pending": pending})


async def list_facets(backend: ToolBackend, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Count a collection's documents by their answers."""
    del tool
    definitions = await backend.definitions()
    collection = str(given["collection"])
    if collection not in definitions.by_name:
        known = sorted(definitions.by_name)
        message = f"unknown collection {collection[:80]!r}{errors.nearest(collection[:80], known)}"
        raise errors.UnknownCollection(message, allowed=known)
    questions = definitions.by_name[collection].questions
    counts = (str(given["facet"]),) if "facet" in given else tuple(questions)
    fields = {name: given[name] for name in ("min_confidence", "filter", "scope") if name in given}
    reply = await backend.search(
        {**fields, "collection": collection, "counts": counts, "limit": 1, "facet_size": BUCKETS_ASKED}
    )
    limit = int(given.get("limit", VALUES_DEFAULT))
    found = [display.deep(_facet(each, str(given.get("contains", "")), limit)) for each in reply["facets"]]
    shown = rendering.that_fit(found, rendering.RESULT_BYTES_MAX)
    parts = [_facet_text(each) for each in shown]
    if len(shown) < len(found):
        parts.append(f"and {', '.join(each['name'] for each in found[len(shown) :])}; select one with facet")
    text = "\n\n".join([*parts, f"{reply['total']} documents"])
    content = {"facets": shown, "total": reply["total"]}
    return ToolReply(rendering.bounded(text, "use facet, contains or a lower limit"), content)


def _facet(found: Mapping[str, Any], contains: str, limit: int) -> dict[str, Any]:
    folded = contains.casefold()
    matching = [each for each in found["buckets"] if folded in str(each["value"]).casefold()]
    values = sorted(matching, key=lambda each: -int(each["count"]))
    return {
        "name": found["name"],
        "type": found["type"],
        "values": [{"value": each["value"], "count": each["count"]} for each in values[:limit]],
        "more_values": max(0, len(values) - limit),
        "missing": {name: count for name, count in found["missing"].items() if count or name == "count"},
    }


def _facet_text(found: Mapping[str, Any]) -> str:
    lines = [f"{found['name']}:", *(f"  {_value(each['value'])}  {each['count']}" for each in found["values"])]
    if found["more_values"]:
        lines.append(f"  and {found['more_values']} more values; raise limit, or use contains")
    reasons = ", ".join(f"{name} {count}" for name, count in found["missing"].items() if name != "count")
    return "\n".join(
        [*lines, f"  no usable answer  {found['missing']['count']}" + (f" ({reasons})" if reasons else "")]
    )


def _value(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


async def get_document(backend: ToolBackend, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Read a document of a collection that agents may read."""
    del tool
    uri, offset = display.named(str(given["uri"])), int(given.get("offset", 0))
    await locate(backend, uri)
    return _document(await backend.get(uri), offset)


async def locate(backend: ToolBackend, uri: str) -> str:
    """Return the collection that a uri belongs to, among those that agents may read.

    Raises:
        InvalidEvent: it belongs to none; the message names their patterns.
    """
    definition, _key = (await backend.definitions()).locate(documents.parse_uri(uri))
    return definition.name


def _document(found: Mapping[str, Any], offset: int) -> ToolReply:
    body = found["body"] or ""
    part, ends = rendering.body_part(body, offset)
    following = ends if ends < len(body) and part else None
    answers = {name: display.deep(rendering.answer(value)) for name, value in (found["facets"] or {}).items()}
    state, is_whole = _state(display.deep(found["state"] or {}))
    uri, names = display.handle(found["uri"]), ("status", "reason", "version", "written_at")
    content: dict[str, Any] = {"uri": uri, **{name: found[name] for name in names}}
    content |= {"answers": answers, "state": state, "note": rendering.UNTRUSTED_BODY, "body": part}
    content |= {"body_chars": len(body), "next_offset": following}
    reason = f" ({found['reason']})" if found["reason"] else ""
    answered = "  ".join(rendering.answer_text(name, value) for name, value in answers.items()) or "none"
    lines = [f"{uri}  {found['status']}{reason}  version {found['version']}", f"answers: {answered}"]
    if state:
        lines.append(f"fields: {rendering.state_text(state)}" + ("" if is_whole else " … truncated"))
    lines.append(rendering.fenced(part))
    if following is not None:
        lines.append(f"characters {offset} to {ends} of {len(body)}; continue with offset={following}")
    return ToolReply("\n".join(lines), content)


def _state(state: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    if rendering.size_of(state) <= rendering.STATE_BYTES_MAX:
        return dict(state), True
    return rendering.small_state(state), False


async def query_sql(backend: ToolBackend, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Run a read-only statement."""
    del tool
    reply = await backend.sql(str(given["sql"]), int(given.get("limit", VALUES_DEFAULT)))
    columns = [display.line(each["name"] if isinstance(each, dict) else each) for each in reply["columns"]]
    rows = display.deep(reply["rows"])
    kept = rendering.that_fit(rows, rendering.RESULT_BYTES_MAX)
    lines = [" | ".join(columns), *(" | ".join(_cell(value) for value in row) for row in kept)]
    truncated = bool(reply["truncated"]) or len(kept) < len(rows)
    lines.append(
        f"{len(kept)} rows" + ("; there are more: use a higher limit or a narrower query" if truncated else "")
    )
    content = {"columns": columns, "rows": kept, "truncated": truncated}
    return ToolReply(rendering.bounded("\n".join(lines), "select fewer columns or rows"), content)


def _cell(value: Any) -> str:
    return rendering.quoted(value, rendering.LINE_CHARS_MAX) if isinstance(value, str) else display.line(value)
