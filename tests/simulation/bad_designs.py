"""Engines and stores with a known mistake, each of which the checker must catch."""

from __future__ import annotations

from .world import Design

BANK: list[Design] = []
