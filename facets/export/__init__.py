"""Snapshots as files: Parquet folders, and CSV for spreadsheets."""
