"""Presets and prompts: what people set up once under a name, to use it again, alone or with a group."""
