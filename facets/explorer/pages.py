"""The three main pages: all collections, one collection, one document."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from facetline.facets import documents, errors
from facetline.facets.api.problems import of_error
from facetline.facets.backend import Caller
from facetline.facets.definitions import Definition
from facetline.facets.documents import Status
from facetline.facets.explorer import (
    dead_letters,
    formatting,
    hits,
    pipeline_strip,
    search_url,
    sidebar,
    sort_options,
    text_notices,
)
from facetline.facets.explorer.base import Site, Visitor, is_part
from facetline.facets.explorer.search_url import SearchUrl
from facetline.facets.questions import Question
from facetline.facets.search.selection import MISSING, Selection, check_selection
from facetline.facets.table import tables

# Seconds for each read of the store besides the search, which works without the store.
STORE_S = 2.0
_TEXT_CHIPS = {
    "q": "words",
    "mode": "mode",
    "words": "of the words",
    "exact": "as written",
    "grep": "line",
    "ignore_case": "ignore case",
    "glob": "key",
}
_PLACE = re.compile(r"filter, line (\d{1,6}), column (\d{1,6})")


@dataclass(frozen=True, slots=True)
class Chip:
    """One active filter, with the URL of the search without it."""

    name: str
    value: str
    href: str


class Pages:
    """Handlers of the three pages."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._node = site.node

    async def collections(self, request: Request, visitor: Visitor) -> Response:
        """Show all collections with their questions and the number of documents by status."""
        listed = await self._node.collections(visitor.caller)
        definitions = await self._node.definitions(visitor.caller)
        shown = [
            {
                "definition": definitions.by_name[each["name"]],
                "parts": pipeline_strip.parts(each["counts"]),
                "total": sum(each["counts"].get(status, 0) for status in pipeline_strip.STATUSES),
            }
            for each in listed
            if each["name"] in definitions.by_name
        ]
        waiting = await dead_letters.waiting(self._node, visitor)
        return self._site.render(request, "collections.html", visitor, collections=shown, letters=waiting)

    async def collection(self, request: Request, visitor: Visitor) -> Response:
        """Show the documents of a collection that match the URL."""
        definition = await self._definition(visitor.caller, request.path_params["collection"])
        pairs = request.query_params.multi_items()
        problem: errors.InvalidQuery | None = None
        try:
            asked = search_url.read(definition.name, pairs, questions=definition.questions).declared(
                tables.table_of(definition)
            )
        except errors.InvalidQuery as error:
            asked, problem = SearchUrl(definition.name), error
        if problem is None and not is_part(request) and _has_blanks(pairs):
            return self._site.go(asked.address())
        if problem is None:
            try:
                reply = await self._search(visitor.caller, asked)
            except errors.InvalidQuery as error:
                problem = error
        if problem is not None:
            return await self._refused(request, visitor, definition, asked, problem)
        shown = await self._hits(visitor.caller, definition, reply["hits"], asked)
        values = await self._values(visitor, definition, asked, reply)
        return await self._render_collection(request, visitor, asked, {**values, "hits": shown, "problem": None})

    async def document(self, request: Request, visitor: Visitor) -> Response:
        """Show one document with text, state, answers and their source."""
        definition = await self._definition(visitor.caller, request.path_params["collection"])
        uri = request.path_params["uri"]
        await self._check_uri(visitor.caller, definition, uri)
        found = await self._node.get(visitor.caller, uri)
        evaluation = found.get("evaluation")
        outdated = (
            found["status"] == Status.INDEXED
            and evaluation is not None
            and evaluation["fingerprint"] != definition.fingerprint
        )
        title = hits.title_of(found["state"])
        return self._site.render(
            request,
            "document.html",
            visitor,
            collection=definition.name,
            document=found,
            title=title or found["key"],
            named=title is not None,
            answers=hits.answers(definition.questions, found["facets"], None),
            evaluation=evaluation,
            outdated=outdated,
            confidence=formatting.confidence,
            active=definition.fingerprint,
        )

    async def _check_uri(self, caller: Caller, definition: Definition, uri: str) -> None:
        """Raise `NotFound` for a uri that cannot belong to the collection, whatever the reason."""
        try:
            located, _ = (await self._node.definitions(caller)).locate(documents.parse_uri(uri))
        except errors.InvalidEvent:
            located = None
        if located is None or located.name != definition.name:
            raise errors.NotFound(f"no document {uri[:80]!r} in collection '{definition.name}'")

    async def _search(self, caller: Caller, asked: SearchUrl) -> dict[str, Any]:
        async with self._site.service.searches.one(caller.name):
            return await self._node.search(caller, asked.selection())

    async def _definition(self, caller: Caller, name: str) -> Definition:
        known = (await self._node.definitions(caller)).by_name
        if name not in known:
            hint = errors.nearest(name[:80], known)
            raise errors.UnknownCollection(f"unknown collection {name[:80]!r}{hint}", allowed=sorted(known))
        return known[name]

    async def _refused(
        self,
        request: Request,
        visitor: Visitor,
        definition: Definition,
        asked: SearchUrl,
        problem: errors.InvalidQuery,
    ) -> Response:
        """Show why a search is invalid, with the counts of the search without the invalid part."""
        known = {
            name: fitting
            for name, values in asked.facets.items()
            if (fitting := tuple(value for value in values if _is_valid(definition, name, value)))
        }
        least = asked.min_confidence if asked.min_confidence is None or 0 <= asked.min_confidence <= 1 else None
        valid_part = SearchUrl(definition.name, known, least, scope=asked.scope if definition.scoped else None)
        reply = await self._search(visitor.caller, valid_part)
        kept = replace(valid_part, filter=asked.filter, texts=asked.texts)
        values = await self._values(visitor, definition, kept, reply)
        return await self._render_collection(
            request,
            visitor,
            kept,
            {
                **values,
                "chips": [chip for chip in values["chips"] if chip.name not in {"filter", *_TEXT_CHIPS.values()}],
                "hits": [],
                "next": None,
                "previous": None,
                "notices": [],
                "problem": {
                    "message": problem.message,
                    "caret": _caret(asked.filter, problem),
                    "at_filter": asked.filter is not None and problem.message.startswith("filter"),
                    "allowed": list(problem.allowed)[:30],
                },
            },
            status=of_error(problem).status,
        )

    async def _values(
        self, visitor: Visitor, definition: Definition, asked: SearchUrl, reply: Mapping[str, Any]
    ) -> dict[str, Any]:
        strip = await self._strip(visitor.caller, definition.name)
        # In a thread: the URL of each option contains all selected values, which may be hundreds times hundreds.
        return {**await asyncio.to_thread(_page_values, definition, asked, reply), "strip": strip}

    async def _strip(self, caller: Caller, collection: str) -> pipeline_strip.Strip | None:
        """Return the strip; None while the store is unavailable."""
        try:
            async with asyncio.timeout(STORE_S):
                return pipeline_strip.strip(await self._node.strip(caller, collection))
        except (TimeoutError, errors.TransientError):
            return None

    async def _hits(
        self, caller: Caller, definition: Definition, found: Sequence[Mapping[str, Any]], asked: SearchUrl
    ) -> list[hits.Hit]:
        texts = await self._texts(caller, found)
        return [
            hits.hit(definition.name, definition.questions, each, texts.get(each["uri"]), asked.min_confidence)
            for each in found
        ]

    async def _texts(self, caller: Caller, found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Return the first characters of the texts of hits, without those whose text changed.

        A document may have been written since the search's snapshot: no hit shows a text next to answers to another.
        """
        uris = [each["uri"] for each in found]
        try:
            async with asyncio.timeout(STORE_S):
                texts = await self._node.beginnings(caller, uris, chars=hits.BEGINNING_CHARS)
        except (TimeoutError, errors.TransientError):
            return {}  # the store is unavailable; hits are shown without texts
        revisions = {each["uri"]: each["revision"] for each in found}
        return {uri: text for uri, (revision, text) in texts.items() if revision == revisions[uri]}

    async def _render_collection(
        self, request: Request, visitor: Visitor, asked: SearchUrl, values: Mapping[str, Any], *, status: int = 200
    ) -> Response:
        reply = await asyncio.to_thread(
            self._site.render,
            request,
            "collection.html",
            visitor,
            status=status,
            collection=asked.collection,
            asked=asked,
            least=0.0 if asked.min_confidence is None else asked.min_confidence,
            query=asked.query(paged=False),
            start=f"/{asked.collection}",
            **values,
        )
        if is_part(request):
            # The form also sends its empty fields; the URL that people copy omits them.
            reply.headers["HX-Push-Url"] = asked.address()
        return reply


def _page_values(definition: Definition, asked: SearchUrl, reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template values besides the hits."""
    cursor = reply["next_cursor"]
    first = (asked.page - 1) * search_url.PAGE_ROWS + 1 if reply["hits"] else 0
    previous = asked.previous_page()
    return {
        "definition": definition,
        "facets": sidebar.facets(asked, definition.questions, reply["facets"]),
        "chips": _chips(asked, definition.questions),
        "orders": sort_options.offered(definition, asked.sort, by_words=bool(asked.text("q"))),
        "notices": text_notices.notices(asked, reply.get("search") or {}),
        "total": reply["total"],
        "first": first,
        "last": first + len(reply["hits"]) - 1 if reply["hits"] else 0,
        "pending": reply["as_of"]["pending"],
        "next": asked.next_page(cursor).address() if cursor else None,
        "previous": previous.address() if previous else None,
        "first_page": asked.first_page().address() if asked.page > 1 else None,
    }


def _has_blanks(pairs: Sequence[tuple[str, str]]) -> bool:
    return any(not value.strip() or (name == "min_confidence" and value.strip(" 0.") == "") for name, value in pairs)


def _is_valid(definition: Definition, name: str, value: str) -> bool:
    """Return whether a value can be selected, so that an error elsewhere keeps it."""
    try:
        check_selection(Selection(collection=definition.name, facets={name: (value,)}), definition)
    except errors.InvalidQuery:
        return False
    return True


def _chip_label(question: Question | None, value: str) -> str:
    return sidebar.NO_VALUE if question is None and value == MISSING else sidebar.value_label(question, value)


def _chips(asked: SearchUrl, questions: Mapping[str, Question]) -> list[Chip]:
    found = [
        Chip(name, _chip_label(questions.get(name), value), asked.toggled(name, value).address())
        for name, values in asked.facets.items()
        for value in values
    ]
    found += [Chip(_TEXT_CHIPS[name], value, asked.with_text(**{name: ""}).address()) for name, value in asked.texts]
    if asked.filter:
        found.append(Chip("filter", asked.filter, asked.with_filter(None).address()))
    if asked.min_confidence is not None:
        bare = replace(asked.first_page(), min_confidence=None)
        found.append(Chip("confidence", f"at least {asked.min_confidence:g}", bare.address()))
    if asked.scope:
        found.append(Chip("scope", asked.scope, replace(asked.first_page(), scope=None).address()))
    return found


def _caret(text: str | None, problem: errors.InvalidQuery) -> tuple[str, str, str] | None:
    """Return the line of a filter's error, split into the text before, at and after its column."""
    # Not every filter error has line and column as fields, but every message begins with them.
    place = _PLACE.match(problem.message)
    if text is None or place is None:
        return None
    line, column = int(place[1]), int(place[2])
    lines = text.splitlines() or [""]
    if line > len(lines):
        return None
    row = lines[line - 1]
    return row[: column - 1], row[column - 1 : column] or " ", row[column:]
