"""The runtime half of Deskside: engine, host, telemetry and terminal, importable without Qt."""

__version__ = "0.1.0"
