"""The Kafka runtime: consuming the documents topic into the store, producing writes, publishing facets."""
