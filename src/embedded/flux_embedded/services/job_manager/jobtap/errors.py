"""What plugins raise."""


class JobtapError(Exception):
    """A callback failed; the text is for the user where there is one (`Plugin.error`)."""


class Rejected(JobtapError):
    """A callback rejects the job (`Plugin.reject_job`); the text is the submission's error."""


#: What a plugin may fail with; one that calls sys.exit() does not end the instance.
FAILURES = (Exception, SystemExit)
