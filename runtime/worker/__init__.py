"""The process that runs one model: it alone imports llama_cpp (beside `runtime.probe`).

`load` opens a model, `vocab` is its tokenizer, `backend` its memory and batches, `sampler` picks tokens, and
`engine` drives them all with `runtime.scheduler`. The front (text, templates, messages) sits above `engine`.
"""
