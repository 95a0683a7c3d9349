"""Reading files of documents, labels and events: CSV, NDJSON, JSON and `kcat -J`."""
