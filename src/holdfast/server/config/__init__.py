"""Settings, their sources, and the providers made from them."""
