"""Search as SQL: what a caller selects, the statements, order, cursors and the reply."""
