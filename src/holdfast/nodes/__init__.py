"""This engine as one of several nodes on a store."""
