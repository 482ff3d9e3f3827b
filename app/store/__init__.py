"""Conversations, messages and presets on disk: SQLite, one lane thread."""

from app.store.lane import StoreLane

__all__ = ["StoreLane"]
