"""Between messages and tokens: the model's chat template, and what its answer is made of.

`sandbox` runs a template that nobody here wrote, `template` feeds it a conversation, `guard` keeps what a person
typed from being read as the model's own control tokens, `prompt` makes a prompt that fits, and `response` tells
reasoning from answer while it streams. Nothing here knows llama_cpp; a tokenizer is handed in.
"""
