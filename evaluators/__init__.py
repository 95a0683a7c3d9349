"""Who judges: the evaluator contract, the check of answers, and the evaluators that ship with Facetline."""
