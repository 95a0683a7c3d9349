"""Agents: what language models and their frameworks are given to search with, and what they get back."""
