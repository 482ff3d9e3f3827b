"""Live readings of the machine: processor, memory and graphics processors.

`HardwareSampler` is the door. One module per source: `cpu`, `nvidia` (over `nvml`), `amd` and `intel` (Linux sysfs,
through `sysfs`), `apple` (ioreg), `windows` (registry). `lane` keeps a source that stalls from holding up the rest.
"""

from runtime.hardware.sampler import HardwareSampler

__all__ = ["HardwareSampler"]
