"""The Models page: what is installed, what can be fetched, what is on its way, and where it goes in memory."""
