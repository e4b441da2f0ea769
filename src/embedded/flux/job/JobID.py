"""Job ids and their encodings (RFC 19)."""

from flux_embedded.formats import jobid as _format

__all__ = ["JobID", "id_encode", "id_parse"]


class JobID(int):
    """A job id: an int that can write itself in every encoding.

    Args:
        value (int or str): the id, as a number or in any encoding

    Raises:
        ValueError: no job id
        OverflowError: a number that is negative or has more than 64 bits
    """

    def __new__(cls, value):
        if isinstance(value, int):
            if value < 0:
                raise OverflowError(f"job id {int(value)} is negative")
            if value > _format.MAX_ID:
                raise OverflowError(f"job id {int(value)} has more than 64 bits")
            self = super().__new__(cls, value)
        elif isinstance(value, str):
            self = super().__new__(cls, _format.decode(value))
        else:
            raise TypeError(f"a job id is made from int or str, not {type(value).__name__}")
        self._orig = value
        return self

    @property
    def orig(self):
        """What it was made from, as str."""
        return str(int(self._orig)) if isinstance(self._orig, int) else self._orig

    @property
    def f58(self):
        """``ƒ...``, or ``f...`` where the locale has no UTF-8."""
        return _format.f58(self)

    @property
    def f58plain(self):
        """``f...``"""
        return _format.f58plain(self)

    @property
    def dec(self):
        return str(int(self))

    @property
    def hex(self):
        return f"{int(self):#x}"

    @property
    def dothex(self):
        return _format.dothex(self)

    @property
    def kvs(self):
        """The job's directory in the KVS."""
        return _format.kvs_dir(self)

    @property
    def words(self):
        """Not in the embedded instance: the words are a table of an external project."""
        raise ValueError("the words encoding of job ids is not supported")

    @property
    def emoji(self):
        """Not in the embedded instance: the emoji are a table of an external project."""
        raise ValueError("the emoji encoding of job ids is not supported")

    def encode(self, encoding="dec"):
        """The id in an encoding: dec, hex, dothex, kvs, f58, f58plain.

        Raises:
            ValueError: another name, or an encoding that is not supported
        """
        if encoding not in ("dec", "hex", "dothex", "kvs", "words", "emoji", "f58", "f58plain"):
            raise ValueError(f"unknown job id encoding {encoding!r}")
        return getattr(self, encoding)

    def __str__(self):
        return self.f58

    def __repr__(self):
        return f"JobID({int(self)})"


def id_parse(text):
    """Return the JobID of a string in any encoding; ValueError if it is none."""
    return JobID(text)


def id_encode(jobid, encoding="f58"):
    """Return a job id in an encoding (see JobID.encode)."""
    return JobID(jobid).encode(encoding)
