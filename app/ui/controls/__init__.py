"""Small controls used on every page."""
