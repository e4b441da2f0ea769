# SPDX-License-Identifier: LGPL-3.0-or-later
"""Amounts of a node beside cores and GPUs, as units of ranks (see ``amounts.py``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from flux.resource.pool.masks import quote

#: Maximum number of steps of an amount in bytes, on the largest node.
MAX_STEPS = 1024
#: Maximum of an amount that is not in bytes.
MAX_NUMBER = 1 << 16

GIB = 1 << 30
#: Attributes of a domain in GiB (RFC 49).
IN_GIB = ("memory", "storage")
#: In place of an amount, the amount of each node in R.
FROM_R = "R"

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": GIB, "T": 1 << 40, "P": 1 << 50}
AMOUNT_TEXT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGTP]?)(?:i?B)?", re.IGNORECASE)


class AmountKind(NamedTuple):
    """One amount that a pool counts.

    Attributes:
        name (str): its name in jobspecs and the configuration
        in_bytes (bool): whether it is in bytes
        step (int): size of a step, in bytes or as a number
        most (int): steps of the largest node
        default (int): steps per node (or per slot anywhere) of a job that does not name it
    """

    name: str
    in_bytes: bool
    step: int
    most: int
    default: int

    def steps(self, value: Any) -> int:
        """Return the steps that a job needs for an amount. Raises ValueError if it is not an
        amount."""
        return -(-read_amount(value, self.in_bytes) // self.step)

    def text(self, steps: int) -> str:
        """Return an amount as text: ``4 GiB memory``."""
        amount = steps * self.step
        if not self.in_bytes:
            return f"{amount} {self.name}"
        for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
            size = UNITS[unit[0]]
            if amount >= size:
                return f"{amount / size:.4g} {unit} {self.name}"
        return f"{amount} B {self.name}"

    def value(self, steps: int) -> Any:
        """Return an amount as in R and the configuration: a number, or text with a unit."""
        amount = steps * self.step
        if not self.in_bytes:
            return amount
        for letter in "PTGMK":
            if amount and amount % UNITS[letter] == 0:
                return f"{amount // UNITS[letter]}{letter}"
        return f"{amount}B"


class NodeAmounts:
    """The amounts of the ranks of a pool.

    Attributes:
        kinds (tuple): of AmountKind
        steps (list): for each kind, a dict of number of steps to mask of ranks
    """

    def __init__(self, kinds: tuple[AmountKind, ...], steps: list[dict[int, int]]) -> None:
        self.kinds = kinds
        self.steps = steps

    def parts(self, ranks: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield ``(mask, steps)`` of some ranks (a mask), divided by their steps of all amounts."""
        parts: dict[tuple[int, ...], int] = {(): ranks}
        for by_steps in self.steps:
            finer: dict[tuple[int, ...], int] = {}
            for have, mask in parts.items():
                for steps, some in [*by_steps.items(), (0, -1)]:
                    key = (*have, steps)
                    if mask & some:
                        finer[key] = finer.get(key, 0) | mask & some
                        mask &= ~some
            parts = finer
        for have, mask in parts.items():
            yield mask, have


def read_amount(value: Any, in_bytes: bool) -> int:
    """Return an amount as a number (of bytes, if `in_bytes`; without a unit it is then in GiB).
    Raises ValueError if it is not an amount; the text begins with its name."""
    wanted = "an amount such as 512M or 4G" if in_bytes else f"a whole number, 0 to {MAX_NUMBER}"
    if isinstance(value, str) and len(value) < 40:
        match = AMOUNT_TEXT.fullmatch(value.strip())
        if match is not None:
            number, letter = match.groups()
            if in_bytes:
                bare = value.strip()[-1] in "0123456789"
                size = GIB if bare else UNITS[letter.upper()]
                whole, _, part = number.partition(".")
                # In whole numbers: a float is not exact beyond 2^53.
                return int(whole + part) * size // int("1" + "0" * len(part))
            if number.isdigit() and not letter:
                value = int(number)
    elif in_bytes and type(value) in (int, float) and 0 <= value < 1 << 40:
        return int(value * GIB)
    if type(value) is int and not in_bytes and 0 <= value <= MAX_NUMBER:
        return value
    raise ValueError(f"{quote(value)}: expected {wanted}")


def has_unit(value: Any) -> bool:
    return isinstance(value, str) and value != FROM_R and value.strip()[-1:] not in "0123456789"
