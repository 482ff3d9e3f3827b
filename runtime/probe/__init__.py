"""Short-lived processes that ask llama.cpp something: a crash in one costs nothing.

Only modules that are run as `python -m runtime.probe.<name>` import llama_cpp; `report` holds what they answer.
"""
