"""What a claim costs does not grow with what is pending: the rows that PostgreSQL reads for it.

Method: PostgreSQL's own count of them, with the plans that it makes for statements that come again and again; those of
SQLite are looked at in `test_queue_plans`, and `make bench ONLY=claim_cost` measures both with 300,000 documents.
"""

import pytest
import sqlalchemy as sa
import stored

from facetline.storage.db import engine, models

pytestmark = pytest.mark.postgres

SCOPES, EACH, TIMES = 20, 10, 100
SLOTS = 20
CLAIMS = 12
"""The driver prepares a statement at its sixth time, and only then is it planned for any value."""
ROWS_MAX = 10 * SLOTS
"""A claim reads some six rows for each document; of 20,000 pending ones, or of those that are claimed, many more."""
READ = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"


def copy(tx: engine.Tx) -> None:
    """Make a hundred documents of each."""
    numbers = sa.func.generate_series(1, TIMES - 1).table_valued("n").render_derived()
    ended = sa.literal("-") + sa.cast(numbers.c.n, sa.Text)
    for table in (models.DOCUMENTS, models.BODIES):
        columns = [column + ended if column.name in {"uri", "key"} else column for column in table.c]
        tx.execute(table.insert().from_select(list(table.c), sa.select(*columns).join(numbers, sa.true())))


def rows_of_a_claim(tx: engine.Tx) -> int:
    """Claim, and return how many rows were read."""
    tx.execute(sa.text("SET LOCAL plan_cache_mode = force_generic_plan"))
    before = tx.execute(sa.text(READ)).scalar_one()
    assert len(stored.claimed(tx, slots=SLOTS).claims) == SLOTS
    return int(tx.execute(sa.text(READ)).scalar_one() - before)


ANSWERED = "UPDATE documents SET status = 'indexed' WHERE uri NOT LIKE '%-9%'"
"""All but a tenth of them, which stand last in their scopes."""


@pytest.mark.parametrize("what", ["pending", "mostly answered"])
async def test_a_claim_reads_no_more_than_it_takes(postgres_url: str, what: str):
    """With 20,000 documents in 20 scopes each of some claims reads a part of them that does not grow with them."""
    documents = {f"@s{n % SCOPES}/scoped/{n}": f"text {n}" for n in range(SCOPES * EACH)}
    async with stored.opened(postgres_url) as store:
        await store.write(stored.defined, "scoped")
        await store.write(stored.write, documents)
        await store.write(copy)
        if what == "mostly answered":
            await store.write(lambda tx: tx.execute(sa.text(ANSWERED)))
        await store.write(lambda tx: tx.execute(sa.text("ANALYZE")))

        rows = [await store.write(rows_of_a_claim) for _ in range(CLAIMS)]

    assert max(rows) < ROWS_MAX, rows
