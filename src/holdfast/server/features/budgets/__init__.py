"""Budgets: what people, keys and groups may use, what they have used, and the runs that are stopped by it."""
