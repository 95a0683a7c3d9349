"""Decision models as evaluators: one call with answers and their distributions."""
