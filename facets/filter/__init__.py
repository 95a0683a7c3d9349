"""The filter language: CQL2 text or JSON to a typed tree over the columns of a table."""
