"""The side chain: claim due documents, call their evaluator, store the answers that are still current."""
