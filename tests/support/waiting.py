"""How long tests wait. Where every core is busy with other work, anything may take many times longer than alone."""

LONG = 120.0
"""Seconds after which something that must happen is given up. A slow machine gets there; what is broken never does."""
SOON = 15.0
"""Seconds within which something happens at once. No time limit of the server is as short, and no busy machine as slow.

How quick it really is, `bench` measures.
"""
