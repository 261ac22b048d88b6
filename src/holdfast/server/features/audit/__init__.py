"""The audit log: the entries that the router writes around audited calls, how they are read, and their retention."""
