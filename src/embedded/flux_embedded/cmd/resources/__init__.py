"""The larger subcommands of ``flux resource``."""
