"""The explorer: the web page over a node, at `/` and `/{collection}`."""
