"""What an answer may look like: grammars, JSON schemas and tool calls as one kind of automaton over bytes.

Pure: no thread, no clock, no llama.cpp.
"""
