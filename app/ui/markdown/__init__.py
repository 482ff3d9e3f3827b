"""Markdown as values: cut into segments as it streams, parsed into blocks that the transcript draws. No Qt here."""
