# SPDX-License-Identifier: LGPL-3.0-or-later
"""Read lines of a trace file, compressed or not, in any encoding."""

import bz2
import contextlib
import gzip
import hashlib
import lzma
import zlib

#: Maximum length of a line in bytes; the rest of a longer one is dropped.
LONGEST_LINE = 1 << 16

#: First bytes of a compressed file -> function that unpacks it.
COMPRESSED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
#: First bytes of files that are not read -> their kind, and a remedy.
OTHERS = {
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "unpack it with unzstd"),
    b"PK\3\4": ("a zip archive", "unpack it with unzip"),
    b"\xff\xfe": ("text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8"),
}
#: Errors of damaged files; of bzip2 they are OSErrors.
DAMAGED = (gzip.BadGzipFile, zlib.error, lzma.LZMAError)


def open_bytes(path):
    """Open a file, unpacking gzip, bzip2 and xz. Raises OSError."""
    stream = open(path, "rb")
    head = stream.read(6)
    stream.seek(0)
    unpack = (COMPRESSED[magic] for magic in COMPRESSED if head.startswith(magic))
    return next(unpack, lambda stream: stream)(stream)


@contextlib.contextmanager
def _opened(source, line):
    """Open a source's file, unpacked, for the ``with`` block; raises TraceError, at ``line()``, for
    its errors."""
    try:
        with open_bytes(source.path) as stream:
            head = stream.read(4)
            for magic, (kind, remedy) in OTHERS.items():
                if head.startswith(magic):
                    raise source.error(0, f"{kind}, which is not read: {remedy}")
            stream.seek(0)
            yield stream
    except EOFError:
        raise source.error(line(), "the compressed file ends here, before its end") from None
    except DAMAGED as exc:
        raise source.error(line(), f"the compressed file is damaged: {exc}") from None
    except OSError as exc:
        raise source.error(0, exc.strerror or str(exc)) from None


def lines(source):
    """Yield (line number, text without newline) of a file.

    Text that is not UTF-8 is read as Latin-1, the encoding of old traces. Raises TraceError if the
    file cannot be opened, or is compressed and damaged or truncated.
    """
    number = 0
    with _opened(source, lambda: number + 1) as stream:
        while True:
            line = stream.readline(LONGEST_LINE)
            if not line:
                return
            number += 1
            if b"\0" in line:
                text = "binary data: it has none of the formats known that are text"
                raise source.error(number, text)
            rest = line
            while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
                rest = stream.readline(LONGEST_LINE)
            yield number, _decoded(line).rstrip("\r\n")


def read_text(source):
    """Return a file as text, with the same handling of compression and encodings."""
    with _opened(source, lambda: 0) as stream:
        return _decoded(stream.read())


def _decoded(data):
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def counted(number, one, several=None):
    """Return a number with its noun: ``1 job``, ``1,200 jobs``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def is_number(text):
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def digest(path):
    """Return the SHA-256 of a file, in hexadecimal."""
    state = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            state.update(block)
    return state.hexdigest()
