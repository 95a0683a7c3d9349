"""Python client of a running `facetline serve`, blocking and asynchronous."""
