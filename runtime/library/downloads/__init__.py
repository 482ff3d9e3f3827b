"""Fetching model files: resumable, checked, and listed as a model only when whole."""
