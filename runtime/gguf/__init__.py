"""What a GGUF file says about itself, read from its header only.

A header is untrusted input: every count and length is checked before it is believed. Nothing here imports
llama_cpp, so a damaged file cannot end the process.
"""
