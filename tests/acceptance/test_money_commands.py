"""Money in the real commands: what is spent, what a day's limit and a bad key do, and that each is said.

One place with a Python evaluator, whose key is refused while a file is there. Local runtime, SQLite.
"""

import re
from pathlib import Path

import pytest
from runtimes import Site
from served import ServedPlace, Server


@pytest.fixture
def site(tmp_path: Path, server: Server) -> Site:
    """An empty local place."""
    made = Site("local", tmp_path, {})
    made.place = ServedPlace(tmp_path, server)
    return made


def lines_file(site: Site, *bodies: str) -> Path:
    """Write an import file of notes."""
    path = site.folder / "lines.ndjson"
    path.write_text("".join(f'{{"key": "n{number}", "body": "{body}"}}\n' for number, body in enumerate(bodies)))
    return path


def test_a_bad_key_is_said_by_every_command_and_mended_by_itself(site: Site):
    """`write`, `import`, `reindex`, `jobs show` and `doctor` tell the evaluator, its words and the mend."""
    run, key = site.place.run, site.script.on("bad")
    words = "tickets is paused: it cannot be used (unavailable: 401: the key is refused); fix its key"

    written = run("write", "notes/a", "--body", "billing usd0.25 badkey=bad", "--json")
    imported = run("import", lines_file(site, "outage badkey=bad"), "--collection", "notes", "--json")
    reindexed = run("reindex", "notes", "--json")
    shown = run("jobs", "show", reindexed.json["id"])
    doctor = run("doctor", "--json")
    key.unlink()
    mended = run("reindex", "notes", "--json")

    assert (written.code, written.json["status"]) == (3, "pending")
    assert words in written.err
    assert "1 document waits" in written.err
    assert "the next write, import or reindex resumes the calls" in written.err
    assert (imported.code, imported.json["written"]) == (1, 1)
    assert (reindexed.code, reindexed.json["progress"].get("failed", 0)) == (1, 0)
    assert "1 document waits" in imported.err
    assert words in reindexed.err
    assert "2 documents wait" in reindexed.err
    assert "tickets is paused" in shown.err
    assert "401: the key is refused" in shown.err
    calls = {line["check"]: line for line in doctor.lines}["calls"]
    assert (doctor.code, calls["ok"]) == (1, False)
    assert "fix its key" in calls["detail"]
    assert (mended.code, mended.json["progress"]["reindexed"]) == (0, 2)


def test_a_days_limit_is_said_and_lifted(site: Site):
    """An import ends with what the limit stopped and when it goes on; a raised limit goes on; `cost` has the sums."""
    run = site.place.run
    bodies = [f"billing {number} usd0.25" for number in range(6)]
    site.define(concurrency=1, limits="max_usd_per_day = 0.5")

    first = run("import", lines_file(site, *bodies), "--collection", "notes", "--json")
    again = run("write", "notes/more", "--body", "other", "--json")
    dry = run("reindex", "notes", "--dry-run", "--json")
    doctor = run("doctor", "--json")
    site.define(concurrency=1, limits="max_usd_per_day = 50")
    raised = run("write", "notes/twin", "--body", bodies[0], "--json")
    rest = run("reindex", "notes", "--json")
    well = run("doctor", "--json")
    cost = run("cost", "--by", "collection", "--json")
    table = run("cost")

    assert (first.code, first.json["written"]) == (1, 6)
    said = r"has spent \$0.5000 of \$0.5 today .*; wait until \d{4}-\d\d-\d\d 00:00 UTC, .* 4 documents wait"
    assert re.search(said, first.err)
    assert (again.code, again.json["status"]) == (3, "pending")
    assert "or raise the limit" in again.err
    assert dry.json == {"dry_run": True, "documents": 5, "calls": 5, "tokens": 15, "cost_usd": 1.25}
    assert "has spent $0.5000 of $0.5 today" in doctor.lines[-1]["detail"]
    assert (doctor.code, doctor.lines[-1]["paused"], well.lines[-1]["paused"]) == (0, True, False)
    assert (raised.json["status"], rest.json["state"]) == ("indexed", "succeeded")
    assert cost.lines == [
        {
            "collection": "notes",
            "calls": 7,
            "input_tokens": 19,
            "output_tokens": 0,
            "cost_usd": 1.5,
            "calls_without_cost": 1,
        }
    ]
    assert "$1.500000 + 1 unknown" in table.out
    assert "the cost of 1 of 7 calls is unknown" in table.err


def test_a_sentence_to_search_by_is_charged_and_bound_by_the_limit(site: Site):
    """`search --ask` is a call like any other in the ledger, and none is made when the day's money is spent."""
    run = site.place.run
    site.define(limits="max_usd_per_day = 0.2")
    run("write", "notes/a", "--body", "billing")

    asked = run("search", "notes", "--ask", "billing usd0.25", "--json")
    refused = run("search", "notes", "--ask", "billing usd0.25", "--json")
    cost = run("cost", "--json")

    assert asked.code == 0, asked.err
    assert (refused.code, refused.out) == (1, "")
    assert "has spent $0.2500 of $0.2 today" in refused.err
    assert (cost.lines[0]["calls"], cost.lines[0]["cost_usd"]) == (2, 0.25)
    assert len(site.script.calls()) == 2


def test_cost_refuses_what_is_not_there(site: Site):
    """An unknown collection, evaluator or day is a usage error that names what there is."""
    run = site.place.run
    run("collections", "apply")

    no_collection = run("cost", "--collection", "note")
    no_evaluator = run("cost", "--evaluator", "nobody")
    no_day = run("cost", "--since", "yesterday")
    nothing = run("cost")

    assert (no_collection.code, no_evaluator.code, no_day.code, nothing.code) == (2, 2, 2, 0)
    assert "no collection 'note' (did you mean 'notes'?); there are notes, tickets" in no_collection.err
    assert "there are tickets" in no_evaluator.err
    assert "2026-11-30" in no_day.err
    assert "no call is in the ledger" in nothing.err
