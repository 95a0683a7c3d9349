"""Health, metrics and status of a process."""
