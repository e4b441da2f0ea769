# SPDX-License-Identifier: LGPL-3.0-or-later
"""Encodings of job ids (RFC 19)."""

import locale
import os
import re

from flux.resource.pool.jobid import F58_DIGITS, base58
from flux_engine.formats.form import quote

_VALUE = {c: i for i, c in enumerate(F58_DIGITS)}
_DOTHEX = re.compile(r"[0-9a-fA-F]{1,4}(?:\.[0-9a-fA-F]{1,4}){3}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}")
_DEC = re.compile(r"[0-9]{1,20}")
MAX_ID = (1 << 64) - 1


def f58plain(value):
    """F58 with an ASCII ``f`` in front."""
    return "f" + base58(value)


def f58(value):
    """F58 in the form that the locale of the process can print: ``ƒ...`` or ``f...``."""
    return ("f" if ascii_only() else "ƒ") + base58(value)


def ascii_only():
    """True when job ids are to be written without the letter ƒ."""
    if "FLUX_F58_FORCE_ASCII" in os.environ:
        return True
    return locale.nl_langinfo(locale.CODESET) != "UTF-8"


def dothex(value):
    """Four groups of four hexadecimal digits."""
    text = f"{value:016x}"
    return f"{text[:4]}.{text[4:8]}.{text[8:12]}.{text[12:]}"


def kvs_dir(value):
    """The job's directory in the KVS (RFC 16)."""
    return f"job.{dothex(value)}"


#: name of an encoding -> function of the integer
FORMS = {
    "dec": str,
    "hex": "0x{:x}".format,
    "kvs": kvs_dir,
    "dothex": dothex,
    "f58": f58,
    "f58plain": f58plain,
}


def decode(text):
    """Return the integer of a job id in any encoding but words and emoji. ValueError: it is not one."""
    body = text.lstrip()
    if body.startswith("job."):
        body = body[4:]
    if "." in body:
        if _DOTHEX.fullmatch(body):
            return int("".join([group.zfill(4) for group in body.split(".")]), 16)
    elif "-" in body:
        raise ValueError(f"job id {quote(text)}: the words encoding is not supported")
    elif body[:1] in ("ƒ", "f"):
        value = _from_base58(body[1:13])
        if value is not None and len(body) <= 13 and value <= MAX_ID:
            return value
    elif body[:1] >= "\U0001f000":
        raise ValueError(f"job id {quote(text)}: the emoji encoding is not supported")
    elif body.startswith("0x"):
        if _HEX.fullmatch(body.rstrip()):
            return int(body, 16)
    elif _DEC.fullmatch(body.rstrip()):
        value = int(body)
        if value <= MAX_ID:
            return value
    shown = text if text.isprintable() and len(text) <= 64 else quote(text)
    raise ValueError(f"{shown} is not a valid Flux jobid")


def _from_base58(digits):
    value = 0
    for c in digits:
        digit = _VALUE.get(c)
        if digit is None:
            return None
        value = value * 58 + digit
    return value if digits else None
