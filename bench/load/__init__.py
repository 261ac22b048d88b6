"""The instruments, in C: an upstream and a load client that are never the limit."""
