"""The APIs of other vendors."""
