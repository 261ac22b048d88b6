"""The dialects of our HTTP surface: pure functions from what a cursor reads to bytes."""
