"""Explorer: the web pages over a backend, at `/` and `/{collection}`."""
