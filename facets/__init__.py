"""The vocabulary of Facetline and the search over it; knows no Kafka, no store and no model."""
