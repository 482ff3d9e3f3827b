"""The terminal program. `runtime.cli.main` is its entry point; each command is a module that is loaded when called."""
