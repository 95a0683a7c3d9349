"""Other people's SQL: one SELECT at a time, in a separate process, over a Parquet snapshot.

What runs there (`child`, `statement`, `values`) is separated from what starts, feeds and stops it (`process`, `box`).
"""
