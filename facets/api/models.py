"""Request models: validate parameters and bodies, and describe them in the OpenAPI document."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from facetline.facets.api import request_parsing

Json = dict[str, Any]
TIMEOUT_MAX_S = 60.0
"""Maximum waiting time of a write; `Limits.timeout_s`."""
FRESHNESS_MAX_MS = 30_000
TOKENS_MAX = 16
ITEMS_MAX = 1_000
LETTERS_MAX = 200


class Taken(BaseModel):
    """Base of request models: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Fresh(Taken):
    """Freshness that a reply must have."""

    at_least: list[str] = Field(
        default=[], max_length=TOKENS_MAX, description="tokens of writes and replies; the reply includes all of them"
    )
    wait_ms: int = Field(
        default=2_000, ge=0, le=FRESHNESS_MAX_MS, description="how long to wait for that freshness, in milliseconds"
    )


class Waited(Taken):
    """What a write waits for before its reply, and how long."""

    wait: Literal["none", "applied", "answered"] = Field(
        default="applied", description="reply when the write is acknowledged, applied, or its facets are available"
    )
    timeout: str = Field(
        default="10s",
        pattern=r"^\d{1,9}(\.\d{1,9})?(ms|s)$",
        description="how long to wait: a duration such as 10s or 500ms, up to 60s",
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


MinConfidence = Annotated[
    float | None, Field(ge=0, le=1, description="answers with a lower confidence count as missing")
]
Filter = Annotated[str | None, Field(description="CQL2 text over all columns")]
Limit = Annotated[int, Field(ge=1, le=200, description="hits of one page")]
Cursor = Annotated[str | None, Field(description="`next_cursor` of the page before")]
FacetSize = Annotated[
    int, Field(ge=1, le=1_000, description="maximum number of buckets of a facet, highest counts first")
]
FacetSort = Annotated[Literal["declared", "count", "alpha"], Field(description="order of the buckets")]
FacetMinCount = Annotated[int, Field(ge=0, description="omit buckets with a lower count, except selected ones")]
FacetMode = Annotated[
    Literal["disjunctive", "conjunctive"], Field(description="disjunctive: a facet's counts ignore its own selection")
]
Scope = Annotated[str | None, Field(description="only this scope")]
Fields = Annotated[
    Literal["body"] | None,
    Field(description="`body`: hits carry their text, rows have it as `doc_body`; pages then have at most 50 hits"),
]
Query = Annotated[
    str | None,
    Field(
        max_length=1_000, description='words to look for; `"a phrase"`, `-word` and `word*` are syntax, nothing else is'
    ),
]
Mode = Annotated[
    Literal["keyword", "vector", "hybrid"] | None,
    Field(description="by words, by meaning, or both; default: both with an embedder, else by words"),
]
Words = Annotated[Literal["any", "all"], Field(description="a match has any or all of the words")]
Exact = Annotated[bool, Field(description="words as they are written: no stems, no corrected typos")]
MinScore = Annotated[float | None, Field(ge=0, le=1, description="only hits with at least this score")]
Grep = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=1_000,
        description="only documents with a line that matches (RE2; what is no RE2 is taken literally, and noted)",
    ),
]
IgnoreCase = Annotated[bool, Field(description="`grep` in upper or lower case alike")]
Glob = Annotated[
    str | None,
    Field(max_length=512, description="only documents whose key, or path without scope, matches: `* ** ? [] {}`"),
]
Highlight = Annotated[bool, Field(description="hits have `highlights`, `snippet` and `line_range`")]
ScoreDetails = Annotated[bool, Field(description="hits have `score_details`")]
_SORT = "columns, comma-separated; prefix `-` for descending"
_COUNTS = "questions and own fields (`state_NAME`) to count, comma-separated; `*`: all questions"
_MC = "minimum confidence of one question's answers, instead of `min_confidence`"


class Search(Fresh):
    """A search as a JSON body; `facets` are keyed by question or own field, `mc` by question."""

    facets: dict[str, str | bool | int | list[str | bool | int]] = Field(
        default={},
        description="values by question (options, levels, true or false) or own field such as `state_language`; "
        "several are OR; `__missing__`: no answer, no value",
    )
    min_confidence: MinConfidence = None
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
    q: Query = None
    mode: Mode = None
    words: Words = "any"
    exact: Exact = False
    min_score: MinScore = None
    grep: Grep = None
    ignore_case: IgnoreCase = False
    glob: Glob = None
    highlight: Highlight = False
    score_details: ScoreDetails = False


class SearchParameters(Fresh):
    """A search as URL parameters."""

    f: dict[str, list[str]] = Field(
        default={},
        title="FacetParameters",
        description="`f.QUESTION=VALUE`: an option, a level, `yes` or `no`; `f.state_NAME=VALUE`: an own field; "
        "repeated: OR; `__missing__`: no answer, no value",
    )
    min_confidence: MinConfidence = None
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
    q: Query = None
    mode: Mode = None
    words: Words = "any"
    exact: Exact = False
    min_score: MinScore = None
    grep: Grep = None
    ignore_case: IgnoreCase = False
    glob: Glob = None
    highlight: Highlight = False
    score_details: ScoreDetails = False
    stream: Literal["on"] | None = Field(
        default=None, description="accepted with CSV and NDJSON, which always return all rows"
    )


class TextParameters(Fresh):
    """Which documents a pattern is looked for in, as URL parameters."""

    f: dict[str, list[str]] = Field(
        default={}, title="FacetParameters", description="`f.QUESTION=VALUE`, as in a search"
    )
    min_confidence: MinConfidence = None
    mc: dict[str, float] = Field(default={}, title="ConfidenceParameters", description=f"`mc.QUESTION=0.9`: {_MC}")
    filter: Filter = None
    scope: Scope = None


class GrepParameters(TextParameters):
    """Lines that match a pattern."""

    pattern: str = Field(
        min_length=1, max_length=1_000, description="RE2; what is no RE2 is taken literally, and the reply says so"
    )
    ignore_case: IgnoreCase = False
    glob: Glob = None
    limit: int = Field(default=50, ge=1, le=1_000, description="maximum number of lines")
    context: int = Field(default=0, ge=0, le=5, description="lines before and after each line")


class GlobParameters(TextParameters):
    """Uris that match a pattern; without one all of them."""

    pattern: Glob = None
    limit: int = Field(default=100, ge=1, le=1_000, description="maximum number of uris")


class Write(Taken):
    """A document's new content; absent or null fields stay unchanged."""

    body: str | None = Field(default=None, description="the text that the questions are asked about")
    state: Json | None = Field(default=None, description="the document's state fields; replaces all of them")


class Reindex(Taken):
    """Which documents to classify again; without `outdated` and `force` those without answers."""

    force: bool = Field(default=False, description="all documents")
    outdated: bool = Field(
        default=False, description="also documents whose answers are to older questions or of an older model"
    )
    filter: str | None = Field(default=None, description="only documents that match this CQL2 text")
    scope: str | None = Field(default=None, description="only this scope")
    dry_run: bool = Field(default=False, description="only estimate documents, calls and cost")


Rows = Annotated[int, Field(ge=1, le=10_000, description="maximum number of rows")]
TimeoutMs = Annotated[int, Field(ge=1, le=60_000, description="milliseconds until the statement is stopped")]


SqlFields = Annotated[
    Literal["body"] | None, Field(description="`body`: the tables of collections include the texts as `doc_body`")
]


class Statement(Taken):
    """One read-only SQL statement."""

    sql: str = Field(description="one SELECT; `$name` is a parameter")
    params: Json = Field(default={}, description="parameter values by name")
    limit: Rows = 1_000
    timeout_ms: TimeoutMs = 5_000
    agents: bool = Field(default=False, description="only collections that agents may read")
    fields: SqlFields = None


class StatementParameters(Taken):
    """One SQL statement as URL parameters."""

    sql: str | None = Field(default=None, description="one SELECT")
    limit: Rows = 1_000
    timeout_ms: TimeoutMs = 5_000
    fields: SqlFields = None


ItemState = Literal["waiting", "asked", "reindexed", "failed", "superseded", "skipped", "canceled"]
"""The states of `storage.jobs.decisions.ItemState`."""


class Items(Taken):
    """A page of a job's items."""

    status: ItemState = Field(default="failed", description="only items in this state")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before")
    limit: int = Field(default=100, ge=1, le=ITEMS_MAX, description="items of one page")


class DeadLetters(Taken):
    """A page of dead letters."""

    reason: str | None = Field(default=None, description="only dead letters with this reason")
    cursor: str | None = Field(default=None, description="`next_cursor` of the page before")
    limit: int = Field(default=50, ge=1, le=LETTERS_MAX, description="dead letters of one page")


class Verbose(Taken):
    """Level of detail of a health reply."""

    verbose: bool = Field(default=False, description="list all checks")


class Nothing(Taken):
    """No parameters."""
