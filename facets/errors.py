"""Every failure that Facetline names, grouped by what the caller must do about it.

Three duties: `TransientError` (try again within the deadline), `PermanentError` (this input will never pass: refuse or
dead-letter it) and `FatalError` (stop the process and acknowledge nothing). A docstring is the default message.
Fields carry what a program needs; the message is for people. Library exceptions are translated once, in the adapter
that meets them, with `from`.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from facetline.facets import masking


class PipelineError(Exception):
    """Something went wrong in the pipeline."""

    def __init__(self, message: str | None = None) -> None:
        # Libraries' words may repeat an address with its password.
        self.message = masking.scrubbed(message) if message else (type(self).__doc__ or "").split("\n", 1)[0]
        super().__init__(self.message)


# Duty of the caller: try again within the deadline


class TransientError(PipelineError):
    """Temporary: the same request may succeed later."""


class StoreUnavailable(TransientError):
    """The store of record cannot be reached or is busy."""


class BrokerUnavailable(TransientError):
    """The Kafka broker cannot be reached."""


class WriteInDoubt(TransientError):
    """The write was not acknowledged before its deadline; it will not be applied later. Try again with the same id."""


class NotCaughtUp(TransientError):
    """The view has not come as far as the tokens ask; try again in a moment."""


class ExportFailed(TransientError):
    """The snapshot of the answers cannot be written; try again when its folder has room and can be written."""


class SnapshotGone(TransientError):
    """Too much has changed since this reply began, so its snapshot was given up; ask again and read faster."""


class SqlBusy(TransientError):
    """Too many statements are waiting for a process to run in; try again in a moment."""


class ServerUnavailable(TransientError):
    """The facetline server cannot be reached, or is too busy."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a call used up without a result, as far as its provider reported; None is "not reported", never 0.

    `model` is the id that the provider reported, `usage` has the token counts as an `Evaluated` has them.
    """

    model: str | None = None
    usage: Mapping[str, object] | None = None
    cost_usd: float | None = None


class EvaluatorUnavailable(TransientError):
    """The evaluator cannot be reached or is overloaded.

    `reason` is `timeout`, `rate_limited` or `unavailable`; `retry_after_s` is the provider's own wish, if it has one;
    `spent` is what the call used up nevertheless, None where it was refused before anything was. `counted` False says
    that neither the document nor the evaluator is at fault: the call found out how to ask the next one. Who
    raises that must do so a bounded number of times in a process.

    `tries_max` says that the evaluator was there, answered and was paid, so that nothing speaks against it: a document
    is asked about so many times at most, and then fails with `reason`.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        reason: str = "unavailable",
        retry_after_s: float | None = None,
        spent: Spent | None = None,
        counted: bool = True,
        tries_max: int | None = None,
    ) -> None:
        super().__init__(message)
        self.tries_max = tries_max
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.spent = spent
        self.counted = counted


class EmbedderUnavailable(TransientError):
    """A query cannot be embedded now; search by words, or try again later.

    `reason` is `timeout`, `rate_limited`, `unavailable`, `misconfigured`, `budget_spent` or `refused`.
    """

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class EvaluatorMisconfigured(TransientError):
    """The evaluator's key is refused or its quota is used up: no document is to blame, and none may fail for it.

    `spent` is what a call used up whose answer could not be kept, None where nothing was.
    """

    def __init__(self, message: str | None = None, *, spent: Spent | None = None) -> None:
        super().__init__(message)
        self.spent = spent


# Duty of the caller: refuse this input, and keep it where its writer finds it


class PermanentError(PipelineError):
    """This input cannot pass as it is."""


class InvalidEvent(PermanentError):
    """The event cannot be applied; `reason` is one of the reasons in docs/reference.md."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class EvaluationFailed(PermanentError):
    """The evaluator cannot answer about this body; `reason` is one of the document reasons.

    `spent` is what the call used up, None where that is not known.
    """

    def __init__(self, reason: str, message: str, *, spent: Spent | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.spent = spent


class InvalidAnswer(EvaluationFailed):
    """The evaluator's answers do not fit the questions."""

    def __init__(self, message: str, *, spent: Spent | None = None) -> None:
        super().__init__("invalid_answer", message, spent=spent)


class InvalidQuery(PermanentError):
    """The search cannot be understood; `code` is the problem type, `allowed` what would have been right."""

    code = "invalid-query"

    def __init__(self, message: str, *, allowed: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.allowed = tuple(allowed)


class UnknownCollection(InvalidQuery):
    """There is no such collection."""

    code = "unknown-collection"


class UnknownFacet(InvalidQuery):
    """There is no such question."""

    code = "unknown-facet"


class UnknownValue(InvalidQuery):
    """The question has no such option."""

    code = "unknown-value"


class InvalidText(InvalidQuery):
    """A text of the request cannot be read; `line` and `column` count from 1 where they are known."""

    def __init__(
        self, message: str, *, allowed: Iterable[str] = (), line: int | None = None, column: int | None = None
    ) -> None:
        super().__init__(message, allowed=allowed)
        self.line = line
        self.column = column


class InvalidFilter(InvalidText):
    """The filter cannot be read."""

    code = "filter-syntax"


class SearchTimeout(InvalidQuery):
    """The search took longer than it may, and was stopped; a shorter filter or fewer counts take less."""

    code = "search-timeout"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__doc__ or "")


class InvalidCursor(InvalidQuery):
    """The cursor is damaged or belongs to another search."""

    code = "cursor-mismatch"


class SqlRefused(InvalidQuery):
    """The statement is not a single SELECT over the tables, or uses what could do more than read them."""

    code = "sql-not-read-only"


class SqlFailed(InvalidText):
    """The statement is wrong: its words, a name or a value."""

    code = "sql-error"


class SqlTimeout(InvalidQuery):
    """The statement took longer than it may, and was stopped."""

    code = "sql-timeout"


class SqlTooLarge(InvalidQuery):
    """The statement, what it needs of memory or what it returns is larger than it may be."""

    code = "sql-too-large"


class NotFound(PermanentError):
    """There is no such thing."""


class Conflict(PermanentError):
    """Another request is in the way."""


class KeyReused(Conflict):
    """The Idempotency-Key was used for another request."""


class Forbidden(PermanentError):
    """The token does not have the right to do this."""


# Duty of the caller: stop before anything is acknowledged


class FatalError(PipelineError):
    """The process cannot go on."""


class InvalidDefinition(FatalError):
    """A collection's definition is refused; the message names the collection, the question and the way out."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class InvalidSettings(FatalError):
    """A setting is missing or wrong."""


class InvalidTopics(FatalError):
    """The Kafka topics are missing or not as they were recorded."""


class StoreMismatch(FatalError):
    """The store's schema is not the one that this version works with."""


class ThreadsStuck(FatalError):
    """A library's threads do not end, so that only leaving the process at once helps."""


_WORD_CHARS_MAX = 80
"""Of a word that someone sent, what is compared with names that exist."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the allowed word closest to `word`, or an empty string."""
    close = likeliest(word, allowed)
    return f" (did you mean '{close}'?)" if close else ""


def likeliest(word: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed word that `word` was probably meant to be: but for its case, without a prefix, or alike."""
    word = word[:_WORD_CHARS_MAX]  # a name is shorter, and comparing takes time by the square of the length
    known: dict[str, str] = {}
    for each in allowed:
        known.setdefault(each.casefold(), each)
    meant = word.casefold()
    if meant in known:
        return known[meant]
    if f"state_{meant}" in known:  # a field of the state by its own name, also where other columns end with it
        return known[f"state_{meant}"]
    prefixed = [each for each in known if each.endswith((f"_{meant}", f".{meant}"))] if meant else []
    if len(prefixed) == 1:
        return known[prefixed[0]]
    close = difflib.get_close_matches(meant, list(known), n=1)
    return known[close[0]] if close else None
