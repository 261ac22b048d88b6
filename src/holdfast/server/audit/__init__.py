"""The audit log: what the router writes around audited calls, how it is read, and how long it is kept."""
