"""The promises broken on purpose: one change of one source line or two each, and the quick tests that must notice.

`run.py` applies one at a time to a copy of the tree. A change whose line is gone is an error: mend it here.
"""

from dataclasses import dataclass

PROMISES = {
    1: "Cleared first",
    2: "Never stale",
    3: "Never lost",
    4: "Never paid twice",
    5: "Never invented",
    6: "A write never waits for a model",
    7: "Search runs no model",
    8: "Versions never go back",
}


@dataclass(frozen=True)
class Break:
    """One fault: in `path`, `old` (which is there exactly once) becomes `new`.

    `tests` are tried in their order until one goes red. `simulated`: the simulation sees it within its 500 seeds.
    """

    name: str
    promise: int
    says: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    simulated: bool = True


WRITES = "tests/integration/test_writes.py"
REJECTED = "tests/integration/test_writes_rejected.py"
QUEUE = "tests/integration/test_queue.py"
ANSWERS = "tests/integration/test_queue_answers.py"
JOBS = "tests/integration/test_jobs.py"
MEMORY = "tests/integration/test_write_worker_memory.py"
CHAIN = "tests/integration/test_side_chain.py"
SPEND = "tests/integration/test_spend.py"
SPEND_CHAIN = "tests/integration/test_spend_chain.py"
FEED = "tests/integration/test_feed.py"
SEARCH = "tests/property/test_search.py"
VALIDATION = "tests/property/test_validation.py"
VIEW = "tests/unit/test_view.py"
FOLDING = "tests/unit/test_folding.py"
IMPORTED = "tests/unit/test_imported.py"
REPLAYING = "tests/integration/test_replaying.py"
CALL_FILE = "tests/unit/test_call_file.py"
CHAT_ANSWERS = "tests/unit/test_chat_answers.py"
TOKEN_MASS = "tests/unit/test_token_mass.py"
TURNS = "tests/unit/test_turns.py"
CALLS = "tests/unit/test_calls.py"
ARCHITECTURE = "tests/unit/test_architecture.py"
PUBLICATIONS = "tests/integration/test_publications.py"
BREAKER = "tests/unit/test_breaker.py"

CURRENT = (
    "current = sa.and_(_C.uri == given.c.uri, _C.indexed_as == given.c.indexed_as, due_documents.PENDING, condition)"
)
BREAKS = (
    # 1. Cleared first.
    Break(
        *("clear-keeps-answers", 1, "a body write leaves the old answers", "storage/log/documents.py"),
        *(
            '"reason_message", *_ANSWER), "NULL"',
            '"reason_message"), "NULL"',
            (f"{WRITES}::test_a_body_write_clears_what_was_answered_about_the_old_body",),
        ),
    ),
    Break(
        *("turn-keeps-answers", 1, "a reindex turn leaves the old answers", "storage/jobs/items.py"),
        *(
            '"reason_message", "facets", "evaluation",',
            '"reason_message", "evaluation",',
            (f"{JOBS}::test_job_asks_again_and_ends",),
        ),
    ),
    Break(
        *("job-without-bound", 1, "a reindex clears more than it may at once", "storage/jobs/jobs.py"),
        *(
            'room = unanswered_max - job_items.count(tx, job_id, "asked")',
            "room = unanswered_max",
            (f"{JOBS}::test_no_more_than_the_bound_is_unanswered",),
        ),
    ),
    # 2. Never stale.
    Break(
        *("answer-to-any-clearing", 2, "an answer is stored whatever was cleared since", "storage/queue/completion.py"),
        CURRENT,
        "current = sa.and_(_C.uri == given.c.uri, due_documents.PENDING, condition)",
        (f"{ANSWERS}::test_answer_about_an_older_body_is_discarded",),
    ),
    Break(
        *("answer-to-any-status", 2, "a second answer replaces the first", "storage/queue/completion.py"),
        CURRENT,
        "current = sa.and_(_C.uri == given.c.uri, _C.indexed_as == given.c.indexed_as, condition)",
        (f"{ANSWERS}::test_first_valid_answer_wins",),
    ),
    Break(
        *("end-without-attempt", 2, "a failure, retry or release ends another's claim", "storage/queue/completion.py"),
        "still_claimed = sa.and_(_C.attempt == given.c.attempt, _C.owner.is_not(None))",
        "still_claimed = sa.true()",
        (f"{ANSWERS}::test_end_of_a_lost_claim_changes_nothing",),
    ),
    Break(
        *("memo-of-any-age", 2, "a forced reindex takes remembered answers", "storage/queue/claiming.py"),
        "return entry if each.memo_after_ms < entry.asked_ms <= self._tx.now_ms else None",
        "return entry",
        (f"{QUEUE}::test_forced_document_takes_no_older_memory",),
    ),
    Break(
        *("force-adopts", 2, "a forced reindex takes an answer asked for before it", "storage/jobs/decisions.py"),
        *(
            'return "adopt" if mode != "force" or asked_since else "clear"',
            'return "adopt"',
            (f"{TURNS}::test_each_reindex_mode_clears_adopts_or_closes",),
        ),
    ),
    # 3. Never lost.
    Break(
        *("no-takeover", 3, "a lease that has run out is left alone", "storage/queue/due_documents.py"),
        *(
            "    if uris:\n        freed",
            "    if False:\n        freed",
            (f"{QUEUE}::test_expired_lease_is_taken_over_and_recorded",),
        ),
    ),
    Break(
        *("gap-passed", 3, "what a jump leaves out is passed over", "streams/kafka/write_worker.py"),
        "        record.offset == state.next_offset + index and not isinstance(record.raw.value, Undecodable)\n",
        "        record.offset >= state.next_offset + index and not isinstance(record.raw.value, Undecodable)\n",
        (f"{MEMORY}::test_what_a_jump_leaves_out_is_read_before_what_comes_later",),
    ),
    Break(
        *("gap-stored", 3, "the store lets its position jump", "storage/log/apply.py"),
        "if state is None or batch.start > state.next_offset:",
        "if state is None:",
        (f"{WRITES}::test_a_gap_is_refused_and_nothing_changes",),
        False,  # the worker never hands it such a batch
    ),
    Break(
        *("position-stands", 3, "the position does not move with what was applied", "storage/log/apply.py"),
        *("    positions.advance(tx, moved)  # 4\n", "", (f"{WRITES}::test_redelivery_is_skipped_at_any_age",)),
    ),
    Break(
        *(
            "standstill-unseen",
            3,
            "a partition without progress is never checked",
            "streams/kafka/write_worker.py",
        ),
        "                if self._is_due(partition):\n",
        "                if partition < 0:\n",
        (f"{MEMORY}::test_what_was_never_delivered_is_found_at_a_standstill",),
    ),
    Break(
        *("new-log-unseen", 3, "a topic created again is taken for the old one", "streams/kafka/write_worker.py"),
        *(
            "return _mark(found) != (state.last_timestamp_ms, state.last_hash)",
            "return False",
            (f"{MEMORY}::test_a_log_made_anew_with_as_many_records_is_applied_from_its_start",),
        ),
    ),
    Break(
        *("end-before-position", 3, "the log's end is asked for before the position", "streams/kafka/write_worker.py"),
        """        state = (await self._store.read(positions.get, self._topic)).get(partition)
        first, end = await self._log.bounds(partition)
""",
        """        first, end = await self._log.bounds(partition)
        state = (await self._store.read(positions.get, self._topic)).get(partition)
""",
        (f"{MEMORY}::test_a_position_that_another_worker_moves_meanwhile_is_no_sign_of_another_log",),
    ),
    Break(
        *(
            "truncation-unsaid",
            3,
            "records that the log has lost are passed over in silence",
            "streams/kafka/write_worker.py",
        ),
        *(
            "await self._apply([self._truncated(partition, state, first)])",
            "pass",
            (f"{MEMORY}::test_what_a_log_has_lost_is_one_dead_letter",),
        ),
    ),
    Break(
        *("batch-not-redone", 3, "one event's refused data holds its neighbours up", "storage/log/apply.py"),
        """        return _isolated(tx, lambda: _together(tx, events))
    except (exc.SQLAlchemyError, UnicodeError, OverflowError) as error:
        if not engine.is_data_error(error):
""",
        """        return _isolated(tx, lambda: _together(tx, events))
    except (exc.SQLAlchemyError, UnicodeError, OverflowError) as error:
        if error:
""",
        (f"{REJECTED}::test_a_poison_event_is_a_dead_letter_and_its_neighbours_are_applied",),
        False,  # its log holds nothing that SQLite refuses
    ),
    Break(
        *("no-dead-letter", 3, "a rejected event leaves no letter", "storage/log/apply.py"),
        "    dead_letters.store(tx, folded.letters.values())\n    dead_letters.close",
        "    dead_letters.close",
        (f"{REJECTED}::test_a_rejected_event_is_an_outcome_and_a_dead_letter",),
    ),
    # 4. Never paid twice.
    Break(
        *("takeover-unrecorded", 4, "a takeover is no crash", "storage/queue/due_documents.py"),
        *("crashes=_C.crashes + 1", "crashes=_C.crashes", (f"{QUEUE}::test_expired_lease_is_taken_over_and_recorded",)),
    ),
    Break(
        *("retry-unrecorded", 4, "a retry is not counted", "storage/queue/queue.py"),
        *('"retries": _C.retries + 1,', '"retries": _C.retries,', (f"{ANSWERS}::test_retry_waits_and_is_accounted",)),
    ),
    Break(
        *("cut-off-unrecorded", 4, "a call cut off at a stop is no crash", "storage/queue/queue.py"),
        *(
            '"crashes": _C.crashes + given.c.called,',
            '"crashes": _C.crashes,',
            (f"{ANSWERS}::test_release_is_due_now",),
        ),
    ),
    Break(
        *("redelivery-applied", 4, "what lies below the position is applied again", "storage/log/apply.py"),
        *(" if at >= state.next_offset]", "]", (f"{WRITES}::test_redelivery_is_skipped_at_any_age",)),
    ),
    Break(
        *("event-forgotten", 4, "an event that was settled is applied again", "storage/log/apply.py"),
        "settled = outcomes.settled(tx, {(event.source, event.id) for event in events})",
        "settled = outcomes.settled(tx, set())",
        (f"{REJECTED}::test_a_duplicate_in_a_later_batch_changes_nothing",),
    ),
    Break(
        *("id-reused", 4, "an id may stand for two events", "storage/log/folding.py"),
        *(
            "    if earlier is not None:\n        raise",
            "    if False:\n        raise",
            (f"{FOLDING}::test_same_id_with_other_content_is_rejected",),
        ),
    ),
    Break(
        *("old-claim-called", 4, "a claim is called although its lease may end first", "streams/classify/call.py"),
        *(
            "if call.lease_until_s - now_s < call.assignment.limits.call_s:",
            "if call.lease_until_s < 0:",
            (f"{CALLS}::test_a_call_that_could_outlive_its_lease_is_not_made",),
        ),
    ),
    Break(
        *("equal-bodies-asked", 4, "equal bodies are asked about at the same time", "storage/queue/claiming.py"),
        *(
            "if len(chosen) < slots and key not in self._busy:",
            "if len(chosen) < slots:",
            (f"{QUEUE}::test_equal_bodies_are_claimed_once",),
        ),
        False,  # costs a call more for another document, which breaks no bound of one document
    ),
    Break(
        *("foreign-definition", 4, "a process claims under a definition that is not active", "storage/queue/queue.py"),
        *(
            " for row in active if own[row.name] == row.fingerprint}",
            " for row in active}",
            (f"{QUEUE}::test_only_the_active_fingerprint_claims",),
        ),
    ),
    Break(
        *("nothing-adopted", 4, "a reindex asks again about what is awaited anyway", "storage/jobs/decisions.py"),
        '    if not document.may_be_answered:\n        return "adopt"',
        '    if not document.may_be_answered:\n        return "clear"',
        (f"{TURNS}::test_each_reindex_mode_clears_adopts_or_closes",),
        False,  # a new clearing, whose one call is in bounds
    ),
    Break(
        *("turn-after-cancel", 4, "a canceled job goes on", "storage/jobs/jobs.py"),
        *(
            'if job.state != "running" or job.owner != owner',
            "if job.owner != owner",
            (f"{JOBS}::test_cancel_stops_turns_and_keeps_what_was_asked",),
        ),
    ),
    Break(
        *("charged-again", 4, "a charge is written again when it is sent again", "storage/usage_ledger.py"),
        *(
            "new = [each for each in bill.charges if each.number > applied]",
            "new = list(bill.charges)",
            (f"{SPEND}::test_a_charge_that_is_told_again_is_written_once",),
        ),
    ),
    Break(
        *("late-is-free", 4, "only answers that are stored are charged", "streams/classify/exchange.py"),
        *(
            "    usage_ledger.charge(tx, used)\n",
            "    if settled.stored:\n        usage_ledger.charge(tx, used)\n",
            (f"{SPEND_CHAIN}::test_an_answer_that_came_too_late_was_paid_for",),
        ),
        simulated=False,
    ),
    Break(
        *("import-is-asked", 4, "a document imported with answers is asked about", "storage/log/folding.py"),
        *("        return Status.INDEXED\n", "        return Status.PENDING\n"),
        (f"{IMPORTED}::test_an_import_makes_an_indexed_document",),
        simulated=False,
    ),
    Break(
        *(
            "import-undoes-answers",
            4,
            "an import run again takes an evaluator's answers away",
            "storage/log/folding.py",
        ),
        *(" or not before.fingerprint.startswith(IMPORTED_FINGERPRINT)", ""),
        (f"{IMPORTED}::test_an_import_does_not_undo_what_was_asked_since",),
        simulated=False,
    ),
    Break(
        *("replay-as-new", 4, "a replayed event is taken for a new one when its outcome is forgotten"),
        *("streams/replay/replayer.py", "replace(event, redriven=True, raw=raw)", "replace(event, raw=raw)"),
        (f"{REPLAYING}::test_a_store_that_saw_the_events_takes_none",),
        simulated=False,
    ),
    Break(
        *("replay-calls-live", 4, "a call that was not recorded is made", "evaluators/call_file.py"),
        *('        if self._file.mode == "replay":\n', "        if self._live is None:\n"),
        (f"{CALL_FILE}::test_without_a_recording_there_is_no_live_call",),
        simulated=False,
    ),
    # 5. Never invented.
    Break(
        *("import-unread", 5, "imported answers are stored unread", "streams/wire/imported_answers.py"),
        *("        validation.check(asked, found, confidence_source=source)\n", "        pass\n"),
        (f"{IMPORTED}::test_what_does_not_fit_is_rejected",),
        simulated=False,
    ),
    Break(
        *("no-validation", 5, "answers are stored unread", "streams/classify/call.py"),
        *(
            "        validation.check_evaluated(questions, evaluated)\n",
            "        pass\n",
            (f"{CHAIN}::test_junk_is_never_stored",),
        ),
    ),
    Break(
        *("option-by-any-case", 5, "an option is taken in any case", "evaluators/validation.py"),
        "if not isinstance(choice, str) or choice not in options:",
        "if not isinstance(choice, str) or choice.lower() not in options:",
        (f"{VALIDATION}::test_no_damaged_answer_passes",),
    ),
    Break(
        *("partial-set", 5, "a set may lack answers", "evaluators/validation.py"),
        *(
            "missing, unknown = [name for name in expected if name not in given],",
            "missing, unknown = [],",
            (f"{VALIDATION}::test_no_incomplete_or_overfull_set_passes",),
        ),
    ),
    Break(
        *("nameless-confidence", 5, "a confidence needs no source", "evaluators/validation.py"),
        *(
            "    if not source:\n",
            "    if source == 0:\n",
            (f"{VALIDATION}::test_no_confidence_passes_without_a_source",),
        ),
        False,  # its evaluators always name one
    ),
    Break(
        *("cut-off-is-read", 5, "a reply that was cut off is read", "evaluators/chat/reply.py"),
        *("    if finish == CUT_OFF:\n", "    if finish == 0:\n"),
        (f"{CHAT_ANSWERS}::test_a_completion_without_an_answer_is_refused",),
        simulated=False,
    ),
    Break(
        *("letter-is-certain", 5, "yes without a probability is certain", "evaluators/chat/answers.py"),
        *("        raise Undecided\n", "        return float(said.meaning == TRUE)\n"),
        (f"{CHAT_ANSWERS}::test_a_boolean_letter_without_its_probability_is_undecided",),
        simulated=False,
    ),
    Break(
        *("forced-is-sure", 5, "a code that was forced gets a confidence", "evaluators/chat/logprobs.py"),
        *("if not MASS_MIN <= mass <=", "if not 0 < mass <="),
        (f"{TOKEN_MASS}::test_a_forced_or_impossible_code_has_no_share",),
        simulated=False,
    ),
    # 6. A write never waits for a model.
    Break(
        *("endless-call", 6, "a call has no limit of time", "streams/classify/call.py"),
        "async with asyncio.timeout(assignment.limits.call_s):",
        "async with asyncio.timeout(None):",
        (f"{CALLS}::test_a_call_has_a_wall_clock_limit",),
    ),
    Break(
        *(
            "breaker-stays-shut",
            6,
            "an evaluator that is away uses up documents' tries",
            "streams/classify/circuit_breaker.py",
        ),
        *(
            "if misconfigured or len(self._failed) >= DOCUMENTS_FAILED_MAX:",
            "if misconfigured:",
            (f"{BREAKER}::test_three_different_documents_open_it",),
        ),
        False,  # documents that fail with a reason break no promise
    ),
    Break(
        *("reindex-first", 6, "a reindex comes before live writes", "storage/queue/due_documents.py"),
        *("LANES = (LIVE, REINDEX)", "LANES = (REINDEX, LIVE)"),
        (f"{QUEUE}::test_live_lane_comes_before_the_reindex_lane",),
        False,  # it measures no waiting
    ),
    # 7. Search runs no model.
    Break(
        *("search-knows-models", 7, "the search imports an evaluator", "facets/view/view.py"),
        *(
            "\nfrom facetline.facets.search.conditions import Clause",
            "\nimport facetline.evaluators.contract\nfrom facetline.facets.search.conditions import Clause",
            (f"{ARCHITECTURE}::test_code_keeps_the_import_rule",),
        ),
        False,
    ),
    Break(
        *("two-moments", 7, "counts are of another moment than hits", "facets/view/view.py"),
        "_fetch(cursor, sql.numbers(query)),",
        "_fetch(self._connection.cursor(), sql.numbers(query)),",
        (f"{VIEW}::test_a_search_sees_one_moment",),
        False,  # its searches run when all is quiet
    ),
    Break(
        *("total-of-a-page", 7, "the total is that of the page", "facets/view/view.py"),
        *(
            '"total": numbers.total,',
            '"total": len(found.page),',
            (f"{VIEW}::test_a_total_is_of_all_pages",),
        ),
        False,  # it asks for keys alone
    ),
    Break(
        *("remembered-too-long", 7, "a search gives what another moment gave", "facets/view/result_cache.py"),
        *(
            "if state == self._state else None",
            "if state else None",
            (f"{VIEW}::test_what_is_remembered_is_of_this_moment",),
        ),
        False,  # its searches run when all is quiet
    ),
    # 8. Versions never go back.
    Break(
        *(
            "answer-without-version",
            8,
            "an answer changes a document under its old version",
            "storage/queue/completion.py",
        ),
        *(
            '"version": _C.version + 1,',
            '"version": _C.version + 0,',
            (f"{ANSWERS}::test_answer_is_stored_with_all_that_is_known_of_it",),
        ),
    ),
    Break(
        *("fold-backwards", 8, "a batch is folded from its end", "storage/log/folding.py"),
        *(
            "    for event in events:\n        earlier",
            "    for event in reversed(list(events)):\n        earlier",
            (f"{FOLDING}::test_body_then_state_in_one_batch_still_clears",),
        ),
    ),
    Break(
        *("old-redrive-applied", 8, "a redriven event overwrites a later one", "storage/log/folding.py"),
        *(
            "if event.redriven and before is not None and _latest(",
            "if False and _latest(",
            (f"{FOLDING}::test_redriven_event_below_its_documents_position_is_superseded",),
        ),
    ),
    Break(
        *("answers-not-in-feed", 8, "the feed does not show answers", "storage/queue/completion.py"),
        *(
            '    "memo_after_ms": None,\n    "feed_seq": None,\n',
            '    "memo_after_ms": None,\n',
            (f"{FEED}::test_every_visible_change_comes_once_more",),
        ),
    ),
    Break(
        *("feed-numbers-again", 8, "the feed gives a number twice", "storage/feed.py"),
        *("    tx.execute(sa.update(_STORES).values(feed_seq=highest))\n", "", (f"{FEED}::test_end_never_goes_down",)),
    ),
    Break(
        *("view-takes-older", 8, "the view takes an older version", "facets/table/ddl.py"),
        *(" WHERE excluded.doc_version > known.doc_version", "", (f"{VIEW}::test_an_older_version_changes_nothing",)),
        False,  # its feed never goes back
    ),
    Break(
        *("deleted-shown", 8, "the view shows what it keeps of deleted documents", "facets/search/sql.py"),
        *(
            "if all(MISSING in values for values in named) else []",
            "if named else []",
            (f"{VIEW}::test_a_deleted_document_is_hidden_and_guards",),
        ),
        False,  # its searches name no facet
    ),
    Break(
        *("fold-takes-last", 8, "of two versions in a batch the view takes the last", "facets/table/record_arrays.py"),
        *(
            "if known is None or record.version > known.version:",
            "if known is None or record.version > 0:",
            (f"{VIEW}::test_an_older_version_changes_nothing",),
        ),
        False,  # as above
    ),
    Break(
        *("marked-before-sent", 8, "the publisher records what it has not sent", "streams/kafka/publisher.py"),
        "        failed = await self._send(self._names.facets, records, codec.encode_record)  # 2\n",
        "        failed: list[tuple[int, str]] = []\n",
        ("tests/simulation",),
    ),
    Break(
        *("former-sender-marks", 8, "a publisher that lost its lease moves the position", "storage/publications.py"),
        "    ours = sa.update(_PUBLICATIONS).where(_P.topic == topic, _P.owner == owner, _P.feed_position == start)\n",
        "    ours = sa.update(_PUBLICATIONS).where(_P.topic == topic, _P.feed_position == start)\n",
        (f"{PUBLICATIONS}::test_former_sender_moves_nothing",),
        False,  # a position moved early by what was sent breaks nothing there
    ),
)
