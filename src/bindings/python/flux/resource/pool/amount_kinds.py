# SPDX-License-Identifier: LGPL-3.0-or-later
"""Amounts of a node beside cores and GPUs, as the units of ranks have them (see ``amounts.py``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from flux.resource.pool.masks import quote

#: Steps of an amount that the largest node has at most, where it is in bytes.
MAX_STEPS = 1024
#: The most of an amount that is no number of bytes.
MAX_NUMBER = 1 << 16

GIB = 1 << 30
#: Attributes of a domain that RFC 49 gives in GiB.
IN_GIB = ("memory", "storage")
#: In place of an amount: as much as R says that a node has.
FROM_R = "R"

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": GIB, "T": 1 << 40, "P": 1 << 50}
AMOUNT_TEXT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGTP]?)(?:i?B)?", re.IGNORECASE)


class AmountKind(NamedTuple):
    """One amount that a pool counts.

    Attributes:
        name (str): how jobs and the configuration call it
        in_bytes (bool): whether it is a number of bytes
        step (int): the size of a step, in bytes or as a number
        most (int): steps of the node that has most
        default (int): steps for each node, or slot anywhere, of a job that does not say
    """

    name: str
    in_bytes: bool
    step: int
    most: int
    default: int

    def steps(self, value: Any) -> int:
        """The steps that a job needs for an amount.

        Raises:
            ValueError: it is no amount
        """
        return -(-read_amount(value, self.in_bytes) // self.step)

    def text(self, steps: int) -> str:
        """An amount as text: ``4 GiB memory``."""
        amount = steps * self.step
        if not self.in_bytes:
            return f"{amount} {self.name}"
        for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
            size = UNITS[unit[0]]
            if amount >= size:
                return f"{amount / size:.4g} {unit} {self.name}"
        return f"{amount} B {self.name}"

    def value(self, steps: int) -> Any:
        """An amount as R and the configuration have it: a number, or text with a unit."""
        amount = steps * self.step
        if not self.in_bytes:
            return amount
        for letter in "PTGMK":
            if amount and amount % UNITS[letter] == 0:
                return f"{amount // UNITS[letter]}{letter}"
        return f"{amount}B"


class NodeAmounts:
    """How much the ranks of a pool have of each amount.

    Attributes:
        kinds (tuple): of AmountKind
        steps (list): for each kind, a dict of numbers of steps to the mask of the ranks with that number
    """

    def __init__(self, kinds: tuple[AmountKind, ...], steps: list[dict[int, int]]) -> None:
        self.kinds = kinds
        self.steps = steps

    def parts(self, ranks: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Divide a mask of ranks into those that have the same of all amounts: ``(mask, steps)``."""
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
    """An amount as a number, of bytes if it is `in_bytes`; a number without unit is GiB then.

    Raises:
        ValueError: it is none; the text begins with its name
    """
    wanted = "such as 512M or 4G" if in_bytes else f"a number, 0 to {MAX_NUMBER}"
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
    raise ValueError(f"{quote(value)}: expected an amount {wanted}")


def has_unit(value: Any) -> bool:
    return isinstance(value, str) and value != FROM_R and value.strip()[-1:] not in "0123456789"
