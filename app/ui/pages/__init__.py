"""The pages beside the chat; each is imported when it is first shown."""
