"""What the routes take, as models: requests are read by them, and the OpenAPI document says what they say."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from facetline.facets.api import request_parsing

Json = dict[str, Any]
TIMEOUT_MAX_S = 60.0
"""How long a write's reply may be waited for; `Limits.timeout_s`."""
FRESHNESS_MAX_MS = 30_000
TOKENS_MAX = 16
ITEMS_MAX = 1_000
LETTERS_MAX = 200


class Taken(BaseModel):
    """What a request carries: nothing but its fields."""

    model_config = ConfigDict(extra="forbid")


class Fresh(Taken):
    """How new a reply must be."""

    at_least: list[str] = Field(
        default=[], max_length=TOKENS_MAX, description="tokens of writes and replies: the reply is at least so new"
    )
    wait_ms: int = Field(
        default=2_000, ge=0, le=FRESHNESS_MAX_MS, description="how long to wait for that, in milliseconds"
    )


class Waited(Taken):
    """How long a write's reply waits, and for what."""

    wait: Literal["none", "applied", "answered"] = Field(
        default="applied", description="reply when the write is acknowledged, applied, or its facets are there"
    )
    timeout: str = Field(
        default="10s",
        pattern=r"^\d{1,9}(\.\d{1,9})?(ms|s)$",
        description="how long to wait for that: a time such as 10s or 500ms, up to 60s",
    )

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, text: str) -> str:
        request_parsing.seconds(text, most_s=TIMEOUT_MAX_S)
        return text

    @property
    def timeout_s(self) -> float:
        """The timeout in seconds."""
        return request_parsing.seconds(self.timeout, most_s=TIMEOUT_MAX_S)


LeastConfidence = Annotated[float | None, Field(ge=0, le=1, description="answers below it count as missing")]
Filter = Annotated[str | None, Field(description="CQL2 text over all columns")]
Limit = Annotated[int, Field(ge=1, le=200, description="hits of one page")]
Cursor = Annotated[str | None, Field(description="`next_cursor` of the page before")]
FacetSize = Annotated[int, Field(ge=1, le=1_000, description="buckets of one facet at most, the fullest")]
FacetSort = Annotated[Literal["declared", "count", "alpha"], Field(description="the order of buckets")]
FacetMinCount = Annotated[int, Field(ge=0, description="leave out buckets with fewer, those selected apart")]
FacetMode = Annotated[
    Literal["disjunctive", "conjunctive"], Field(description="whether a facet's counts pass over its own selection")
]
Scope = Annotated[str | None, Field(description="one scope only")]
Fields = Annotated[
    Literal["body"] | None,
    Field(description="`body`: hits carry their text, rows have it as `doc_body`; pages then have at most 50 hits"),
]
_SORT = "columns, separated by commas; `-` before one: descending"
_COUNTS = "questions to count, separated by commas; `*`: all"
_MC = "the least confidence of a question's answers, in place of `min_confidence`"


class Search(Fresh):
    """A search, as JSON; `facets` and `mc` are by question."""

    facets: dict[str, str | bool | list[str | bool]] = Field(
        default={},
        description="wanted values by question: options, levels, true or false; several are OR, `__missing__` is one",
    )
    min_confidence: LeastConfidence = None
    mc: dict[str, float] = Field(default={}, description=_MC)
    filter: Annotated[
        str | dict[str, Any] | None, Field(description="a filter over all columns, as CQL2 text or CQL2 JSON")
    ] = None
    sort: str | list[str] = Field(default="", description=_SORT)
    limit: Limit = 20
    cursor: Cursor = None
    counts: str | list[str] = Field(default="", description=_COUNTS)
    facet_size: FacetSize = 50
    facet_sort: FacetSort = "declared"
    facet_min_count: FacetMinCount = 0
    facet_mode: FacetMode = "disjunctive"
    scope: Scope = None
    fields: Annotated[
        Literal["body"] | list[Literal["body"]] | None,
        Field(description="`body`: hits carry their text; a page then has at most 50 of them"),
    ] = None


class SearchParameters(Fresh):
    """A search, as an address."""

    f: dict[str, list[str]] = Field(
        default={},
        title="FacetParameters",
        description="`f.QUESTION=VALUE`: an option, a level, `yes` or `no`; repeated: OR. `__missing__` is a value",
    )
    min_confidence: LeastConfidence = None
    mc: dict[str, float] = Field(default={}, title="ConfidenceParameters", description=f"`mc.QUESTION=0.9`: {_MC}")
    filter: Filter = None
    sort: str = Field(default="", description=_SORT)
    limit: Limit = 20
    cursor: Cursor = None
    counts: str = Field(default="", description=_COUNTS)
    facet_size: FacetSize = 50
    facet_sort: FacetSort = "declared"
    facet_min_count: FacetMinCount = 0
    facet_mode: FacetMode = "disjunctive"
    scope: Scope = None
    fields: Fields = None
    stream: Literal["on"] | None = Field(default=None, description="with CSV and NDJSON: all rows (they always are)")


class Write(Taken):
    """A document's new content; what is absent or null stays as it is."""

    body: str | None = Field(default=None, description="the text that the questions are about")
    state: Json | None = Field(default=None, description="the document's own fields, all of them")


class Reindex(Taken):
    """What to ask again; without `outdated` and `force` the documents without an answer."""

    force: bool = Field(default=False, description="all documents")
    outdated: bool = Field(default=False, description="those answered under another fingerprint, too")
    filter: str | None = Field(default=None, description="only those that this CQL2 text finds")
    scope: str | None = Field(default=None, description="only this scope")
    dry_run: bool = Field(default=False, description="only say what it would take")


Rows = Annotated[int, Field(ge=1, le=10_000, description="rows returned")]
TimeoutMs = Annotated[int, Field(ge=1, le=60_000, description="milliseconds until it is stopped")]


SqlFields = Annotated[
    Literal["body"] | None, Field(description="`body`: the collections' tables have the texts, as `doc_body`")
]


class Statement(Taken):
    """One SQL statement that reads only."""

    sql: str = Field(description="one SELECT; `$name` stands for a parameter")
    params: Json = Field(default={}, description="values by name")
    limit: Rows = 1_000
    timeout_ms: TimeoutMs = 5_000
    agents: bool = Field(default=False, description="over the collections that agents may see alone")
    fields: SqlFields = None


class StatementParameters(Taken):
    """One SQL statement, as an address."""

    sql: str | None = Field(default=None, description="one SELECT")
    limit: Rows = 1_000
    timeout_ms: TimeoutMs = 5_000
    fields: SqlFields = None


ItemState = Literal["waiting", "asked", "reindexed", "failed", "superseded", "skipped", "canceled"]
"""As the store has them: `storage.jobs.decisions.ItemState`."""


class Items(Taken):
    """A page of a job's items."""

    status: ItemState = Field(default="failed", description="the state of the items listed")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before")
    limit: int = Field(default=100, ge=1, le=ITEMS_MAX, description="items of one page")


class DeadLetters(Taken):
    """A page of dead letters."""

    reason: str | None = Field(default=None, description="only letters with this reason")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before")
    limit: int = Field(default=50, ge=1, le=LETTERS_MAX, description="letters of one page")


class Verbose(Taken):
    """How much to say."""

    verbose: bool = Field(default=False, description="list all checks")


class Nothing(Taken):
    """No parameters."""
