"""The chat page and what it is made of."""
