"""Tool servers and their tools: chosen for a chat, set up under Settings."""
