"""Continuous batching as pure Python: no threads, no clock, no llama_cpp.

`types` is the contract with the worker, `scheduler` holds the step order, `prefix` the radix tree of what the
sequences hold, `stops` the byte-level stop matcher and `hostcache` the bounded memory of sequences that lost
their place.
"""
