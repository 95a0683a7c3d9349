"""Tools that change data: present only if allowed, and within the caller's rights."""

import json
from collections.abc import Mapping
from typing import Any

from facetline.facets import display, errors
from facetline.facets.agents import rendering
from facetline.facets.agents.backends import ToolBackend
from facetline.facets.agents.reading import locate
from facetline.facets.agents.replies import ToolReply
from facetline.facets.agents.tools import Tool
from facetline.facets.backend import ReindexRequest


async def write_document(backend: ToolBackend, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Write a document of a collection that agents may read."""
    del tool
    uri = display.named(str(given["uri"]))
    body, state = given.get("body"), _state(given.get("state"))
    if body is None and state is None:
        raise errors.InvalidQuery("nothing to write; send body or state")
    collection = await locate(backend, uri)
    return await _written(backend, collection, await backend.write(uri, body, state))


async def delete_document(backend: ToolBackend, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Delete a document of a collection that agents may read."""
    del tool
    uri = display.named(str(given["uri"]))
    collection = await locate(backend, uri)
    return await _written(backend, collection, await backend.delete(uri))


def _state(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        raise errors.InvalidQuery('state must be a JSON object, such as {"title": "…"}')
    return state


async def _written(backend: ToolBackend, collection: str, reply: Mapping[str, Any]) -> ToolReply:
    """Return the outcome of a write after the next search includes it, because agents check their writes."""
    shown = {name: reply[name] for name in ("uri", "version", "status", "reason", "event_id") if reply.get(name)}
    notes = ["answers follow in the background"] if reply.get("status") == "pending" else []
    if "status" not in reply:
        notes.append("sent, not applied yet")
    elif "token" in reply:
        try:
            await backend.known(collection, reply["token"])
        except errors.TransientError:
            notes.append("not searchable yet")
    version = [f"version {reply['version']}"] if "version" in reply else []
    shown["uri"] = display.handle(reply["uri"])
    status = [reply["status"]] if "status" in reply else []
    return ToolReply("  ".join([shown["uri"], *version, *status, *notes]), shown)


async def reindex(backend: ToolBackend, tool: Tool, given: Mapping[str, Any]) -> ToolReply:
    """Start or join a job, show its progress, or estimate it."""
    del tool
    definitions = await backend.definitions()
    if "job" in given:
        job = await backend.job(str(given["job"]))
        if job.get("collection") not in definitions.by_name:
            raise errors.NotFound(f"no job {str(given['job'])[:80]!r}")
        return _job(job)
    collection = given.get("collection")
    if collection is None:
        raise errors.InvalidQuery(
            "send collection, or job for the progress of a started one", allowed=definitions.by_name
        )
    if collection not in definitions.by_name:
        raise errors.UnknownCollection(f"unknown collection {collection[:80]!r}", allowed=definitions.by_name)
    request = ReindexRequest(
        collection, bool(given.get("force", False)), bool(given.get("outdated", False)), given.get("filter")
    )
    if given.get("dry_run"):
        plan = await backend.reindex(request, dry_run=True)
        estimate = "  ".join(f"{name} {'unknown' if value is None else value}" for name, value in plan.items())
        return ToolReply(f"nothing was started: {estimate}", dict(plan))
    return _job(await backend.reindex(request, dry_run=False))


def _job(job: Mapping[str, Any]) -> ToolReply:
    shown = {name: job[name] for name in ("id", "collection", "state", "progress") if name in job}
    progress = "  ".join(f"{name} {value}" for name, value in (job.get("progress") or {}).items())
    text = f"job {job['id']}  {job['state']}  {progress}".rstrip()
    return ToolReply(rendering.bounded(text, "check the job later"), shown)
