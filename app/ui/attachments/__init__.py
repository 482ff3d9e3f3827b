"""Pictures, sounds and text files in a chat: taken in, shown small, shown large."""
