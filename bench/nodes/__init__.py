"""What several nodes on PostgreSQL cost, and how they behave when one of them ends. `python -m bench.nodes`."""
