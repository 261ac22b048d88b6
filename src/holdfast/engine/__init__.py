"""The engine: starts runs, keeps their logs, and settles them."""
