"""Wear: what changes leave behind is counted, and bounded by making tables anew."""

from facetline.facets.view.compaction import CHANGES_MIN, Wear


def test_new_rows_are_no_wear() -> None:
    """Filling a table leaves nothing behind, however large it gets; all the same it is change."""
    wear = Wear()

    for size in range(5_000, 1_000_001, 5_000):
        wear.note("notes", written=5_000, rows=size)

    assert wear.worn() == []
    assert wear.changes == 1_000_000


def test_a_table_is_worn_by_as_many_changes_as_it_has_rows() -> None:
    """A large table lasts as many changes as it has rows, a small one `CHANGES_MIN`; made anew, just as long again."""
    wear = Wear()
    wear.note("large", written=CHANGES_MIN * 2, rows=CHANGES_MIN * 2)
    wear.note("small", written=10, rows=10)

    for name, lasts in (("large", CHANGES_MIN * 2), ("small", CHANGES_MIN)):
        rows = wear._tables[name].rows
        for _ in range(2):
            wear.note(name, written=lasts, rows=rows)
            assert wear.worn() == []
            wear.note(name, written=1, rows=rows)
            assert wear.worn() == [name]
            wear.renewed(name)
            assert wear.worn() == []


def test_a_dropped_table_is_forgotten() -> None:
    """A table that is gone is never made anew."""
    wear = Wear()
    wear.note("notes", written=10, rows=10)
    wear.note("notes", written=CHANGES_MIN + 1, rows=10)

    wear.dropped("notes")

    assert wear.worn() == []
