"""Plans, pure: from a model's shape and the machine's devices to a layout, a verdict and a speed. No I/O in here."""
