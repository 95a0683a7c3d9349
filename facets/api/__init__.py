"""HTTP API over a backend: routes, one error format, rights, and limits against slow or hostile clients."""
