"""The wire format: bytes of Kafka records to events and back, answers of earlier systems, and their JSON Schemas."""
