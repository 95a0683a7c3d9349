"""The tools that change something: there only where they were allowed, and within the caller's rights."""

import json
from collections.abc import Mapping
from typing import Any

from facetline.facets import display, errors
from facetline.facets.agents import rendering
from facetline.facets.agents.backends import Source
from facetline.facets.agents.reading import locate
from facetline.facets.agents.replies import ToolReply
from facetline.facets.agents.tools import Tool
from facetline.facets.backend import ReindexRequest


async def write_document(source: Source, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Write a document of a collection that agents may see."""
    del tool
    uri = display.named(str(given["uri"]))
    body, state = given.get("body"), _state(given.get("state"))
    if body is None and state is None:
        raise errors.InvalidQuery("give a body or a state; there is nothing to write")
    collection = await locate(source, uri)
    return await _written(source, collection, await source.write(uri, body, state))


async def delete_document(source: Source, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Delete a document of a collection that agents may see."""
    del tool
    uri = display.named(str(given["uri"]))
    collection = await locate(source, uri)
    return await _written(source, collection, await source.delete(uri))


def _state(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        raise errors.InvalidQuery('state is a JSON object as text, such as {"title": "…"}')
    return state


async def _written(source: Source, collection: str, reply: Mapping[str, Any]) -> ToolReply:
    """Return what became of a write, once the next search knows it: an agent looks at what it has done."""
    shown = {name: reply[name] for name in ("uri", "version", "status", "reason", "event_id") if reply.get(name)}
    notes = ["its answers come in the background"] if reply.get("status") == "pending" else []
    if "status" not in reply:
        notes.append("sent, not applied yet")
    elif "token" in reply:
        try:
            await source.known(collection, reply["token"])
        except errors.TransientError:
            notes.append("searches do not know it yet")
    message = [f"version {reply['version']}"] if "version" in reply else []
    shown["uri"] = display.handle(reply["uri"])
    status = [reply["status"]] if "status" in reply else []
    return ToolReply("  ".join([shown["uri"], *message, *status, *notes]), shown)


async def reindex(source: Source, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Start a job, join it, look at it, or say what it would take."""
    del tool
    definitions = await source.definitions()
    if "job" in given:
        job = await source.job(str(given["job"]))
        if job.get("collection") not in definitions.by_name:
            raise errors.NotFound(f"no job {str(given['job'])[:80]!r}")
        return _job(job)
    collection = given.get("collection")
    if collection is None:
        raise errors.InvalidQuery("name a collection, or a job that was started", allowed=definitions.by_name)
    if collection not in definitions.by_name:
        raise errors.UnknownCollection(f"there is no collection {collection[:80]!r}", allowed=definitions.by_name)
    request = ReindexRequest(
        collection, bool(given.get("force", False)), bool(given.get("outdated", False)), given.get("filter")
    )
    if given.get("dry_run"):
        plan = await source.reindex(request, dry_run=True)
        message = "  ".join(f"{name} {'not known' if value is None else value}" for name, value in plan.items())
        return ToolReply(f"nothing was started: {message}", dict(plan))
    return _job(await source.reindex(request, dry_run=False))


def _job(job: Mapping[str, Any]) -> ToolReply:
    shown = {name: job[name] for name in ("id", "collection", "state", "progress") if name in job}
    progress = "  ".join(f"{name} {value}" for name, value in (job.get("progress") or {}).items())
    text = f"job {job['id']}  {job['state']}  {progress}".rstrip()
    return ToolReply(rendering.bounded(text, "look at the job later"), shown)
