"""Opening a store: made once whoever comes first, brought up to date, refused with a reason."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
import stored
from alembic import autogenerate, command, script
from alembic.config import Config
from alembic.migration import MigrationContext

from facetline.facets import errors
from facetline.storage import counters, usage_ledger
from facetline.storage.db import engine, models, opening

OPEN = """
import asyncio, sys
from facetline.storage.db import opening
async def main():
    store = await opening.open_store(sys.argv[1])
    print(store.store_id, "alembic" in sys.modules)
    await store.close()
asyncio.run(main())
"""


def opener(url: str) -> "subprocess.Popen[str]":
    """Start a process that opens the store and says its id."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", OPEN, url],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


async def test_a_store_keeps_its_id(new_store_url: str):
    """A store is made with an id at first opening and has the same one ever after."""
    async with stored.opened(new_store_url) as first:
        made = first.store_id
    async with stored.opened(new_store_url) as second:
        found = second.store_id

    assert len(made) == 32
    assert found == made


def test_processes_that_open_a_new_store_at_once_agree(new_store_url: str):
    """Several processes that find no store make one between them, without an error."""
    processes = [opener(new_store_url) for _ in range(4)]
    said = [process.communicate(timeout=50)[0].split()[0] for process in processes]

    assert [process.returncode for process in processes] == [0] * 4
    assert len(set(said)) == 1


def test_an_up_to_date_store_opens_without_alembic(new_sqlite_url: str):
    """Only making or changing a schema needs the library for it; every other command starts quickly."""
    first, second = (opener(new_sqlite_url).communicate(timeout=50)[0].split()[1] for _ in range(2))

    assert (first, second) == ("True", "False")


async def test_a_store_of_a_newer_version_is_refused(new_store_url: str):
    """A schema that this version does not know is left alone, with a word on what to do."""
    async with stored.opened(new_store_url) as store:
        await store.write(lambda tx: tx.execute(sa.text("UPDATE alembic_version SET version_num = '9999'")))

    with pytest.raises(errors.StoreMismatch, match=r"9999.*upgrade facetline"):
        await opening.open_store(new_store_url)


async def test_a_database_of_something_else_is_refused(new_store_url: str):
    """Tables that are not ours are never mixed with ours."""
    other = engine.make_engine(new_store_url)
    with other.begin() as connection:
        connection.execute(sa.text("CREATE TABLE customers (id INTEGER)"))
    other.dispose()

    with pytest.raises(errors.StoreMismatch, match="something else"):
        await opening.open_store(new_store_url)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    """A file of another kind is named, not overwritten."""
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, not a database; " * 100)

    with pytest.raises(errors.StoreMismatch, match=r"notes\.txt"):
        await opening.open_store(f"sqlite:///{path}")

    assert path.read_text().startswith("these are notes")


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    """A path that cannot be opened says so at once."""
    with pytest.raises(errors.StoreUnavailable, match="nowhere"):
        await opening.open_store(f"sqlite:///{tmp_path}/nowhere/store.sqlite")


async def test_a_file_that_is_moved_takes_no_write_until_it_is_back(tmp_path: Path):
    """A store whose file was moved says so and acknowledges nothing, not even into a new file; put back, it goes on."""
    path = tmp_path / "here" / "store.sqlite"
    path.parent.mkdir()
    store = await opening.open_store(f"sqlite:///{path}")
    try:
        path.parent.rename(tmp_path / "away")
        with pytest.raises(errors.StoreUnavailable, match="moved or deleted"):
            await store.write(tx_id)
        path.parent.mkdir()
        path.touch()
        with pytest.raises(errors.StoreUnavailable, match="another file"):
            await store.read(tx_id)
        path.unlink()
        path.parent.rmdir()
        (tmp_path / "away").rename(path.parent)

        assert await store.write(tx_id) == store.store_id
    finally:
        await store.close()


def tx_id(tx: engine.Tx) -> str:
    """Read the id of the store."""
    return str(tx.execute(sa.text("SELECT store_id FROM store")).scalar_one())


async def test_a_server_that_is_away_is_tried_until_the_deadline(tmp_path: Path):
    """Opening gives up within its own deadline, and its message does not tell the password."""
    began = time.monotonic()

    with pytest.raises(errors.StoreUnavailable) as caught:
        await opening.open_store(f"postgresql+psycopg://me:secret@/facetline?host={tmp_path}", deadline_s=0.5)

    assert time.monotonic() - began < 5
    assert "secret" not in str(caught.value)


async def test_the_steps_make_exactly_the_tables(new_store_url: str, tmp_path: Path):
    """A migrated store has the columns, keys and indexes, partial ones too, that the table classes say."""
    async with stored.opened(new_store_url) as store:
        with store.engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True}
            )
            differences = autogenerate.compare_metadata(context, models.METADATA)
            migrated = schema(connection)
            connection.rollback()
            # The same from the classes, in place of the migrated one.
            connection.execute(sa.text("DROP TABLE alembic_version"))
            models.METADATA.drop_all(connection)
            models.METADATA.create_all(connection)
            declared = schema(connection)

    assert differences == []
    assert migrated == declared


async def test_a_store_of_an_earlier_version_keeps_what_it_has(new_store_url: str):
    """A store made by the first schema, is brought up to date: same id, same content, and a ledger."""
    old = engine.make_engine(new_store_url)
    with old.begin() as connection:
        steps = Config(attributes={"connection": connection})
        steps.set_main_option("script_location", str(opening.MIGRATIONS))
        steps.set_main_option("path_separator", "os")
        command.upgrade(steps, opening.REVISIONS[0])
        connection.execute(sa.text("INSERT INTO store VALUES (1, 'the-old-id', 0, 0)"))
        connection.execute(sa.text("INSERT INTO tallies VALUES ('crashes', 3)"))
    old.dispose()

    async with stored.opened(new_store_url) as store:
        found, spent = await store.read(counters.all), await store.read(usage_ledger.by_collection)

    assert (store.store_id, found, spent) == ("the-old-id", {"crashes": 3}, {})


def schema(connection: sa.Connection) -> list[str]:
    """Return what the database itself says about columns and indexes."""
    if connection.dialect.name == "sqlite":
        tables = "SELECT m.name, p.* FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table'"
        indexes = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    else:
        tables = (
            "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name "
            "FROM information_schema.columns WHERE table_schema = 'public'"
        )
        indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
    rows = [*connection.execute(sa.text(tables)), *connection.execute(sa.text(indexes))]
    told = [json.dumps([None if cell is None else str(cell) for cell in row]) for row in rows]
    return sorted(text for text in told if "alembic_version" not in text)


def test_the_known_revisions_are_those_of_the_files():
    """The list that spares a command the import of alembic is the list of the files."""
    config = Config()
    config.set_main_option("script_location", str(opening.MIGRATIONS))
    config.set_main_option("path_separator", "os")
    files = script.ScriptDirectory.from_config(config)

    assert tuple(step.revision for step in files.walk_revisions())[::-1] == opening.REVISIONS


def test_concurrent_sqlite_writers_lose_nothing(new_sqlite_url: str):
    """Processes that write to one file at once all get through, and no lock error surfaces."""
    work = (
        "import asyncio, sys\n"
        "from facetline.storage import counters\n"
        "from facetline.storage.db import opening\n"
        "async def main():\n"
        "    store = await opening.open_store(sys.argv[1])\n"
        "    for _ in range(40):\n"
        "        await store.write(counters.add, 'n', 1)\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    words = [sys.executable, "-W", "error", "-c", work, new_sqlite_url]
    processes = [subprocess.Popen(words, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE) for _ in range(4)]
    said = [process.communicate(timeout=50)[1] for process in processes]

    with sa.create_engine(new_sqlite_url).connect() as connection:
        total = connection.execute(sa.text("SELECT value FROM tallies WHERE name = 'n'")).scalar_one()
        connection.engine.dispose()
    assert [process.returncode for process in processes] == [0] * 4, said
    assert total == 160


def take_away(path: Path, how: str) -> None:
    """Delete a file; or put an empty one in its place."""
    path.rename(path.with_name("away"))
    if how == "replaced":
        path.touch()


@pytest.mark.parametrize("how", ["deleted", "replaced"])
@pytest.mark.parametrize("end", ["-wal", "-shm"])
async def test_what_sqlite_keeps_beside_the_file_is_missed_before_a_write_is_acknowledged(
    tmp_path: Path, end: str, how: str
):
    """With the WAL deleted under a process nothing more is acknowledged, and what was is in the next one's store."""
    path = tmp_path / "store.sqlite"
    url = f"sqlite:///{path}"
    store = await opening.open_store(url)
    try:
        for _ in range(5):
            await store.write(counters.add, "n", 1)
        take_away(Path(f"{path}{end}"), how)
        with pytest.raises(errors.StoreUnavailable, match=end):
            await store.write(counters.add, "n", 1)
        if (how, end) == ("deleted", "-wal"):
            (tmp_path / "copy").mkdir()
            shutil.copy(path, tmp_path / "copy" / path.name)  # what a process that starts after a kill finds
            async with stored.opened(f"sqlite:///{tmp_path}/copy/{path.name}") as found:
                assert (await found.read(counters.all))["n"] == 5
    finally:
        await store.close()


async def test_a_wal_that_is_deleted_during_a_write_is_missed(tmp_path: Path):
    """A write that was committed into a deleted WAL is not acknowledged."""
    path = tmp_path / "store.sqlite"
    store = await opening.open_store(f"sqlite:///{path}")

    def write(tx: engine.Tx) -> None:
        counters.add(tx, "n", 1)
        Path(f"{path}-wal").unlink()

    try:
        await store.write(counters.add, "n", 1)
        with pytest.raises(errors.StoreUnavailable, match="-wal"):
            await store.write(write)
    finally:
        await store.close()
