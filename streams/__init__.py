"""What happens: events, workers, runtimes, and the place where all parts are put together."""
