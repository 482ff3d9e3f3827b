"""The server page: the API switch, who uses it, how programs connect, keys, settings."""
