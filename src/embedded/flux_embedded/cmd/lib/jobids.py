"""Job ids on the command line."""

from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.formats import jobid
from flux_embedded.formats.jobid import decode, f58

#: how the commands that flux-core writes in Python say it
INVALID = "invalid JobID value: '{}'"

#: form of a job id -> function of its number
ENCODERS = {
    "dec": str,
    "hex": lambda n: f"{n:#x}",
    "dothex": jobid.dothex,
    "kvs": jobid.kvs_dir,
    "f58": jobid.f58,
    "f58plain": jobid.f58plain,
}

__all__ = ["ENCODERS", "INVALID", "decode", "f58", "parse", "parse_all"]


def parse(text, message='error parsing jobid: "{}"'):
    """The integer of a job id in any encoding.

    Raises:
        CommandError: message, with the text put in
    """
    try:
        return decode(text)
    except ValueError:
        raise CommandError(message.format(text)) from None


def parse_all(texts, message='error parsing jobid: "{}"'):
    return [parse(text, message) for text in texts]
