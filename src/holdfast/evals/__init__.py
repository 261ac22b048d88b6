"""Evals: a set of prompts to several models, and a report."""
