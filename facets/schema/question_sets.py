"""Question sets: may these questions stand in one collection?

Asked of every definition, from Python and from `facetline.toml` alike. What one evaluator cannot take (more options,
another type) is `facets.collections.check_evaluator`'s to say.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from facetline.facets.errors import nearest
from facetline.facets.questions import Boolean, Choice, Question, Score
from facetline.facets.schema import names

# One call asks them all, and each is a few columns of one table.
QUESTIONS_MAX = 128
# A question or a description is a sentence or a few; all of them together must leave the body its place in a prompt.
TEXT_BYTES_MAX = 4096
# An option is a value in addresses, filters and a column's type.
OPTION_BYTES_MAX = 255

MISSING = "__missing__"
"""The value that a search gives for "no usable answer"; no option may be called so."""

_KEYS = {"choice": ("type", "ask", "options"), "boolean": ("type", "ask"), "score": ("type", "ask", "levels")}
_TYPES = "choice, boolean or score"
_PER_CALL = "questions are fixed when a collection is defined and cannot be computed per call; give the questions"


def problems(questions: object) -> list[str]:
    """Return everything that is wrong with a set of questions; each problem names its question."""
    if not isinstance(questions, Mapping):
        return [_PER_CALL if callable(questions) else "questions are a mapping of ids to questions; write one"]
    if not questions:
        return ["no questions; declare at least one"]
    found = []
    if len(questions) > QUESTIONS_MAX:
        found.append(f"{len(questions)} questions, at most {QUESTIONS_MAX} are taken; make two collections of it")
    for name, question in questions.items():
        id_problem = names.question_problem(name)
        about = ([id_problem] if id_problem else []) + _question_problems(question)
        found += [_named(name, problem) for problem in about]
    return found


def from_tables(tables: object) -> tuple[dict[str, Question], list[str]]:
    """Read the `[collections.NAME.questions.ID]` tables; return the readable questions, and all that is wrong."""
    if not isinstance(tables, Mapping):
        return {}, ["questions are tables; write [collections.NAME.questions.ID] for each"]
    read: dict[str, Question] = {}
    unreadable = []
    for name, table in tables.items():
        found = _table_problems(table)
        if found:
            id_problem = names.question_problem(name)
            unreadable += [_named(name, problem) for problem in ([id_problem] if id_problem else []) + found]
        else:
            read[name] = _from_table(table)
    others = problems(read) if read or not unreadable else []
    return read, [*unreadable, *others]


def _named(name: object, problem: str) -> str:
    return f"question {name!r:.80}: {problem}"


def _from_table(table: Mapping[str, Any]) -> Question:
    if table["type"] == "choice":
        return Choice(ask=table["ask"], options=dict(table["options"]))
    if table["type"] == "boolean":
        return Boolean(ask=table["ask"])
    return Score(ask=table["ask"], levels=tuple(table["levels"]))


def _table_problems(table: object) -> list[str]:
    if not isinstance(table, Mapping):
        return ["takes a table with type and ask"]
    kind = table.get("type")
    if kind is None:
        return [f"type is missing; write {_TYPES}"]
    if not isinstance(kind, str) or kind not in _KEYS:
        hint = nearest(kind, _KEYS) if isinstance(kind, str) else ""
        return [f"Unknown question type {kind!r:.80}{hint}; write {_TYPES}"]
    known = _KEYS[kind]
    found = [
        f"{key!r:.80} is not taken{nearest(key, known)}; a {kind} has {', '.join(known)}"
        for key in table
        if key not in known
    ]
    found += [f"{key} is missing; a {kind} has {', '.join(known)}" for key in known if key not in table]
    return found + [problem for key in known if key in table for problem in _type_problems(key, table[key])]


def _type_problems(key: str, value: object) -> list[str]:
    if key == "ask" and not isinstance(value, str):
        return ["ask takes text; write the question as a person would ask it"]
    if key == "options" and not (isinstance(value, Mapping) and _all_text(value.values())):
        return ["options take a table of keys with their descriptions, all of them text"]
    if key == "levels" and not (isinstance(value, list) and _all_text(value)):
        return ["levels take a list of texts, the lowest first"]
    return []


def _all_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _question_problems(question: object) -> list[str]:
    if not isinstance(question, (Choice, Boolean, Score)):
        return [
            _PER_CALL if callable(question) else f"is no question; make one with {_TYPES} of facetline.facets.questions"
        ]
    found = _text_problems("ask", question.ask, TEXT_BYTES_MAX)
    if isinstance(question, Choice):
        found += _options_problems(question.options)
    if isinstance(question, Score):
        found += _levels_problems(question.levels)
    return found


def _options_problems(options: Mapping[str, str]) -> list[str]:
    found = []
    if len(options) < 2:  # noqa: PLR2004 (one option is no choice)
        found.append("a choice needs two options or more; add one, such as other")
    for key, description in options.items():
        found += _value_problems(f"option {key!r:.80}", key, OPTION_BYTES_MAX)
        if _folded(key) == MISSING:
            found.append(f"option {key!r} is the value of documents without an answer; choose another key")
        if description:
            found += _text_problems(f"the description of option {key!r:.80}", description, TEXT_BYTES_MAX)
    return found + _equal_problems("options", options)


def _levels_problems(levels: tuple[str, ...]) -> list[str]:
    found = []
    if len(levels) < 2:  # noqa: PLR2004 (one level is no scale)
        found.append("a score needs two levels or more, the lowest first; add one")
    for level in levels:
        found += _value_problems(f"level {level!r:.80}", level, TEXT_BYTES_MAX)
    return found + _equal_problems("levels", levels)


def _equal_problems(what: str, texts: Iterable[str]) -> list[str]:
    seen: dict[str, str] = {}
    found = []
    for text in texts:
        folded = _folded(text)
        if folded in seen:
            found.append(f"{what} {seen[folded]!r:.80} and {text!r:.80} differ in case at most; rename one")
        seen.setdefault(folded, text)
    return found


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _value_problems(what: str, value: str, bytes_max: int) -> list[str]:
    # Options and levels are typed into filters and addresses: nothing invisible may be part of them.
    if value != value.strip():
        return [f"{what} starts or ends with blanks; take them off"]
    if any(unicodedata.category(letter) == "Cc" for letter in value):
        return [f"{what} holds a control character; take it out"]
    return _text_problems(what, value, bytes_max)


def _text_problems(what: str, text: str, bytes_max: int) -> list[str]:
    if not text.strip():
        return [f"{what} is blank; write it out"]
    if any(unicodedata.category(letter) == "Cs" or letter == "\0" for letter in text):
        return [f"{what} holds a NUL or half a surrogate pair; take it out"]
    size = len(text.encode())
    if size > bytes_max:
        return [f"{what} has {size} bytes, at most {bytes_max} are taken; shorten it"]
    return []
