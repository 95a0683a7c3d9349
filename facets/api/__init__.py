"""The HTTP API over a node: routes, one error shape, rights, and limits against slow or hostile clients."""
