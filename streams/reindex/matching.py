"""Which documents a reindex with a filter is about: the view finds them."""

from facetline.facets.search.selection import Selection
from facetline.storage.jobs.model import JobRequest
from facetline.streams.views.follower import Follower


async def matching(follower: Follower, request: JobRequest, after: str, limit: int) -> list[str]:
    """Return the next `limit` uris above `after` that the request's filter matches, in order.

    Raises:
        UnknownCollection, InvalidFilter: the request is wrong.
    """
    selection = Selection(collection=request.collection, filter=request.filter, scope=request.scope or None)
    return await follower.uris(selection, after=after, limit=limit)
