"""An evaluation's report for people, in Markdown, from the JSON of `streams.evaluation.report`. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from facetline.evaluators.quality import measures

CONFUSED_MAX = 15
"""Mistakes listed of a question, the most frequent first; all of them are in the JSON."""


def markdown(report: Mapping[str, Any]) -> str:
    """Return the report as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    evaluators = report["evaluators"]
    yield f"# Evaluation on {report['lines']} labelled texts"
    if len(evaluators) > 1:
        yield from _side_by_side(report)
    for each in evaluators:
        yield from ("", f"## {_cell(each['evaluator'])}", "", _summary(each))
        for name, figures in each["questions"].items():
            yield from _question(name, figures)


def _side_by_side(report: Mapping[str, Any]) -> Iterator[str]:
    header = ("evaluator", "question", "answered", "right", "95 % interval", "ECE", "against the first")
    rows = []
    differences = {(each["evaluator"], each["question"]): each for each in report["differences"]}
    for each in report["evaluators"]:
        for name, figures in each["questions"].items():
            gap = differences.get((each["evaluator"], name))
            rows.append(
                (
                    _cell(each["evaluator"]),
                    _cell(name),
                    f"{figures['n']} of {figures['labelled']}",
                    _share(figures["accuracy"]),
                    _interval(figures["interval"]),
                    _number(figures["ece"]),
                    "" if gap is None or gap["difference"] is None else _gap(gap),
                )
            )
    yield from ("", *table(header, rows), "")
    yield "The last column compares the share of right answers over the texts that both answered."


def _gap(gap: Mapping[str, Any]) -> str:
    low, high = gap["interval"]
    points = f"{100 * gap['difference']:+.1f} points"
    return f"{points} ({100 * low:+.1f} to {100 * high:+.1f}, n={gap['n']})"


def _summary(each: Mapping[str, Any]) -> str:
    fitted = each.get("fitted")
    if fitted is not None:
        return (
            f"temperature {fitted['temperature']:g}, fitted on {fitted['fitted_on']} labels of"
            f" {_cell(fitted['source'])}; the figures are of the other {fitted['measured_on']}"
        )
    parts = [f"`{each['kind']}`, {_cell(each['model'])}: {each['answered']} of {each['lines']} answered"]
    parts += [f"{count} failed as `{reason}`" for reason, count in sorted(each["failed"].items())]
    parts += [f"{count} failed for now (`{reason}`)" for reason, count in sorted(each["failed_for_now"].items())]
    parts.append(f"{each['calls']['made']} calls made, {each['calls']['recorded']} known from before")
    if each["cost_usd"] is not None:
        parts.append(f"cost {each['cost_usd']:.4f} USD")
    if each["latency_ms"]["p50"] is not None:
        parts.append(f"latency p50 {each['latency_ms']['p50']:.0f} ms, p95 {each['latency_ms']['p95']:.0f} ms")
    stopped = f"\n\n**Not asked to the end**: {_cell(each['stopped'])}" if each["stopped"] else ""
    return ", ".join(parts) + stopped


def _question(name: str, figures: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"### {_cell(name)}", "", _question_summary(figures))
    if not figures["n"]:
        return
    header = ("option", "texts", "found (recall)", "right when given (precision)", "F1")
    options = figures["options"].items()
    rows = [
        (_cell(option), str(of["n"]), _number(of["recall"]), _number(of["precision"]), _number(of["f1"]))
        for option, of in options
    ]
    yield from ("", *table(header, rows))
    yield from _confused(figures["confusion"])
    yield from _sureness(figures)


def _question_summary(figures: Mapping[str, Any]) -> str:
    if not figures["n"]:
        return f"none of {figures['labelled']} labelled texts answered"
    parts = [f"right {_share(figures['accuracy'])} ({_interval(figures['interval'])}) of {figures['n']} answered"]
    if figures["n"] < figures["labelled"]:
        parts.append(f"{figures['labelled'] - figures['n']} of {figures['labelled']} not answered, and not counted")
    for name, words in (("ece", "ECE"), ("brier", "Brier score"), ("mean_absolute_error", "mean error in levels")):
        if figures.get(name) is not None:
            parts.append(f"{words} {figures[name]:.3f}")
    return "; ".join(parts)


def _confused(confusion: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    mistakes = sorted(
        ((count, label, given) for label, row in confusion.items() for given, count in row.items() if given != label),
        key=lambda mistake: (-mistake[0], mistake[1:]),
    )
    if mistakes:
        rows = [(_cell(label), _cell(given), str(count)) for count, label, given in mistakes[:CONFUSED_MAX]]
        yield from ("", *table(("is", "was taken for", "texts"), rows))
        if len(mistakes) > CONFUSED_MAX:
            yield f"\nand {len(mistakes) - CONFUSED_MAX} rarer mistakes"


def _sureness(figures: Mapping[str, Any]) -> Iterator[str]:
    if figures["reliability"]:
        rows = [
            (f"{of['at_least']:.1f} to {of['at_least'] + 0.1:.1f}", str(of["answers"]), *_pair(of))
            for of in figures["reliability"]
        ]
        yield from ("", *table(("confidence", "answers", "mean confidence", "right"), rows))
    if not figures["coverage"] and figures.get("brier") is None:
        yield "\nNo answer has a confidence, so there is no `min_confidence` to choose."
    if figures["coverage"]:
        header = ("`min_confidence`", "answers left", "of all", "right", "95 % interval")
        covered = [
            (
                f"{of['min_confidence']:g}",
                str(of["n"]),
                _share(of["coverage"]),
                _share(of["accuracy"]),
                _interval(of["interval"]),
            )
            for of in figures["coverage"]
        ]
        yield from ("", *table(header, covered), "", _suggestion(figures["suggested"]))


def _pair(of: Mapping[str, Any]) -> tuple[str, str]:
    return _number(of["confidence"]), _number(of["right"])


def _suggestion(suggested: Mapping[str, Any] | None) -> str:
    if suggested is None:
        return f"No `min_confidence` leaves answers that are right in {measures.TARGET:.0%} of the cases."
    return (
        f"The smallest `min_confidence` whose answers are right in {measures.TARGET:.0%} of the cases:"
        f" {suggested['min_confidence']:g} (right {_share(suggested['accuracy'])}, interval"
        f" {_interval(suggested['interval'])}; it leaves {_share(suggested['coverage'])} of the answers)."
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _interval(interval: Sequence[float] | None) -> str:
    return "-" if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"
