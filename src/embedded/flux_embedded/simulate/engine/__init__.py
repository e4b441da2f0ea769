"""Two ways to run a scheduler's module on a list of jobs: `lean` and `instance`."""
