"""One collection's view in a process that serves: what it holds of the feed, and who uses it."""

import asyncio
from dataclasses import dataclass

from facetline.facets.definitions import Definition
from facetline.facets.table import tables
from facetline.facets.view.view import View
from facetline.storage import feed


@dataclass
class Live:
    """One collection's view. `complete` False: it is in the middle of a long way, and `reached` is where it began.

    `between` are the documents that had changed and had no number when the view last came to the end: it may hold them
    older than they have been read elsewhere. `owed` are those of an earlier end, `due`, that have not come since.
    """

    definition: Definition
    view: View
    reached: int = 0
    complete: bool = True
    between: frozenset[str] = frozenset()
    owed: frozenset[str] = frozenset()
    due: int = 0
    users: int = 0
    retired: bool = False

    def came_to(self, end: int, between: frozenset[str]) -> None:
        """Note that everything was taken in up to an end of the feed, apart from the documents `between`."""
        self.complete, self.between = True, between
        if len(between) > feed.NUMBERED_MAX:  # there are more than are named
            return
        self.owed &= between  # the others have got new numbers, and were read
        if not self.owed:
            self.reached = max(self.reached, self.due if between else end)
            self.owed, self.due = between, end

    async def drop(self) -> None:
        """Close the view once it is retired and unused."""
        if self.retired and self.users == 0:
            await asyncio.to_thread(self.view.close)


def searched_alike(one: Definition, other: Definition) -> bool:
    """Say whether two definitions of a collection have one table."""
    if one.text != other.text:
        return False
    return one.fingerprint == other.fingerprint and tables.table_of(one).columns == tables.table_of(other).columns
