"""Between messages and tokens: the model's chat template, and what its answer is made of.

`sandbox` runs a template that nobody here wrote, `template` feeds it a conversation in the form that `abilities` found
out and `rows` makes, with what `ask` says; `guard` keeps what a person typed from being read as the model's own control
tokens, and `prompt` makes a prompt that fits. `response` and `regions` tell reasoning from answer while it streams,
`tool_parser` takes tool calls out of it (written as `tool_format` says, for families in `tool_specs`, for others as
`derive` finds out), and `framing` says what stands around an answer. Nothing here knows llama_cpp; a tokenizer is
handed in.
"""
