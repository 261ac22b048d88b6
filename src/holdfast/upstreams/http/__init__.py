"""The base of upstreams over HTTP."""
