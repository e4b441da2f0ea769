"""``flux job``: everything about one job, one file a group of subcommands."""
