"""The context of a session: how much of a model's window it fills, and its compaction."""
