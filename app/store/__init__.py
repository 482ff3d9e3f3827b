"""Conversations, messages and presets on disk: SQLite, one lane thread."""

from app.store.lane import StoreLane
from app.store.store import Store, new_id

__all__ = ["Store", "StoreLane", "new_id"]
