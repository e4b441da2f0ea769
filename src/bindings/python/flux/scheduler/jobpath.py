"""Where a job's data is in the KVS (RFC 16), without a trip through the C library."""


def kvs_dir(jobid):
    """The KVS directory of a job: ``job.`` and the id in dotted hexadecimal (RFC 19)."""
    digits = f"{jobid:016x}"
    return f"job.{digits[:4]}.{digits[4:8]}.{digits[8:12]}.{digits[12:]}"


def r_key(jobid):
    """The KVS key of a job's R."""
    return kvs_dir(jobid) + ".R"
