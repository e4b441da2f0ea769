# SPDX-License-Identifier: LGPL-3.0-or-later
"""The workload model of Lublin and Feitelson (JPDC 63:1105, 2003).

Sizes are one, a power of two, or in between, with a two-stage uniform distribution of the
logarithm; the logarithm of run times is hyper-gamma, and larger jobs run longer; arrivals follow a
daily cycle.
"""

import functools
import math
import random

from flux.simulate.workload.record import OptionError

#: Names and values of the published parameters.
NAMES = (
    "serial", "pow2", "uLow", "uMed", "uHi", "uProb", "a1", "b1", "a2", "b2", "pa", "pb",
    "aArr", "bArr", "aNum", "bNum", "ARAR",
)  # fmt: skip
TYPES = {
    "typeless": (
        0.244, 0.576, 0.8, 4.5, 7, 0.86, 4.2, 0.94, 312, 0.03, -0.0054, 0.78,
        10.2303, 0.4871, 8.1737, 3.9631, 1.0225,
    ),
    "batch": (
        0.2927, 0.6686, 1.2, 5, 7, 0.875, 6.57, 0.823, 639.1, 0.0156, -0.003, 0.6986,
        6.0415, 0.8531, 6.1271, 5.2740, 1.0519,
    ),
    "interactive": (
        0.1541, 0.625, 1, 3, 5.5, 0.705, 3.8351, 0.6605, 7.073, 0.6856, -0.0118, 0.9156,
        6.5510, 0.6621, 8.9186, 3.6680, 0.9797,
    ),
}  # fmt: skip

BUCKET = 1800
BUCKETS = 48
LONGEST_LOG_RUN = 12
LONGEST_LOG_ARRIVAL = 13
#: (bounds, their text, parameters): shares, parameters of gamma distributions, and logarithms of sizes.
RANGES = (
    (0, 1, "0 to 1", ("serial", "pow2", "uProb")),
    (1e-9, 1e6, "a number above 0, up to 1e6", ("a1", "b1", "a2", "b2", "aArr", "bArr", "aNum", "bNum", "ARAR")),
    (-math.inf, 36, "36 or less", ("uLow", "uMed", "uHi")),
)  # fmt: skip
#: Maximum number of draws for a value below its maximum.
DRAWS = 100_000


def parameters(text, size):
    """Parse the parameters of ``lublin[:NAME=VALUE,...]`` for a machine of `size` units. Return a
    list of (type, dict), and the start in seconds of the day. Raises OptionError."""
    kind, start, given = "typeless", 8.0, {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name == "type":
            kind = value
            continue
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise OptionError(f"model lublin: {name}={value}: expected a number")
        if name == "start":
            if not 0 <= number < 24:
                raise OptionError(f"model lublin: start={value}: expected an hour, 0 to 23")
            start = number
        elif name in NAMES:
            given[name] = number
        else:
            raise OptionError(
                f"model lublin: unknown parameter {name!r}: expected type, start or one of {', '.join(NAMES)}"
            )
    kinds = ("interactive", "batch") if kind == "both" else (kind,)
    found = []
    for one in kinds:
        if one not in TYPES:
            raise OptionError(f"model lublin: type={kind}: expected {', '.join(TYPES)} or both")
        values = dict(zip(NAMES, TYPES[one]))
        if size:
            hi = math.log2(size)
            if one == "interactive":
                hi = max(0.5, hi - 1.5)  # as published: 5.5 where batch jobs have 7
            values["uHi"] = hi
            values["uMed"] = max(hi - 2.5, values["uLow"])
            values["uLow"] = min(values["uLow"], values["uMed"])
        values.update(given)
        _check(values)
        found.append((one, values))
    return found, start * 3600


def _check(values):
    """Raise OptionError if a parameter is none of its distribution."""
    for low, high, text, names in RANGES:
        for name in names:
            if not low <= values[name] <= high:
                raise OptionError(f"model lublin: {name}={values[name]:g}: expected {text}")


def _too_large(names):
    return OptionError(f"model lublin: with these {names} hardly any value is below its maximum")


class Stream:
    """Jobs of one type: (submit, run, size), with submit in seconds since a midnight."""

    def __init__(self, values, start, rng):
        self.values = values
        self.rng = rng
        self._weights = _weights(values["aNum"], values["bNum"])
        self._slot = int(start // BUCKET)
        self._points = 0.0

    def __next__(self):
        submit = self._arrival()
        size = self._size()
        return float(int(submit)), self._run(size), size

    def _size(self):
        values, rng = self.values, self.rng
        chance = rng.random()
        if chance <= values["serial"]:
            return 1
        if rng.random() <= values["uProb"]:
            log = rng.uniform(values["uLow"], values["uMed"])
        else:
            log = rng.uniform(values["uMed"], values["uHi"])
        if chance <= values["serial"] + values["pow2"]:
            log = round(log)
        return min(max(1, round(2**log)), int(round(2 ** values["uHi"])))

    def _run(self, size):
        values, rng = self.values, self.rng
        share = min(max(values["pa"] * size + values["pb"], 0.0), 1.0)
        for _ in range(DRAWS):
            if rng.random() <= share:
                log = rng.gammavariate(values["a1"], values["b1"])
            else:
                log = rng.gammavariate(values["a2"], values["b2"])
            if log <= LONGEST_LOG_RUN:
                return int(math.exp(log))
        raise _too_large("a1, b1, a2, b2, pa and pb")

    def _arrival(self):
        values, rng = self.values, self.rng
        for _ in range(DRAWS):
            log = rng.gammavariate(values["aArr"] * values["ARAR"], values["bArr"])
            if log <= LONGEST_LOG_ARRIVAL:
                break
        else:
            raise _too_large("aArr, bArr and ARAR")
        # Each half hour holds points in proportion to its load; an arrival uses some up.
        self._points += math.exp(log) / BUCKET
        weight = self._weights[self._slot % BUCKETS]
        while self._points > weight:
            self._points -= weight
            self._slot += 1
            weight = self._weights[self._slot % BUCKETS]
        return self._slot * BUCKET + self._points / weight * BUCKET


@functools.lru_cache(maxsize=8)
def _weights(shape, scale):
    """Return the relative load of each half hour of a day, 1 on average."""
    weights = [0.0] * BUCKETS
    for i in range(11, 59):
        low, high = (_gamma_cdf(shape, scale, i + half) for half in (-0.5, 0.5))
        weights[(i - 1) % BUCKETS] = high - low
    mean = sum(weights) / BUCKETS
    if not 0 < mean < math.inf:
        raise OptionError(f"model lublin: aNum={shape:g}, bNum={scale:g}: no day has such arrivals")
    # Half hours without arrivals would stop the clock.
    return tuple(max(weight / mean, 1e-6) for weight in weights)


def _gamma_cdf(shape, scale, x):
    """Return the regularized lower incomplete gamma function, as a series."""
    x /= scale
    if x <= 0:
        return 0.0
    term = total = 1.0 / shape
    n = shape
    while total * 1e-15 < term < math.inf:
        n += 1
        term *= x / n
        total += term
    return total * math.exp(-x + shape * math.log(x) - math.lgamma(shape))


def generate(text, count, size, seed):
    """Return an iterator of `count` jobs, (submit, run, size, type or None), by submission, for a machine of
    `size` units; `text` is the part after ``lublin:``, or ""."""
    kinds, start = parameters(text, size)
    rng = random.Random(seed)
    if len(kinds) == 1:
        stream = Stream(kinds[0][1], start, rng)
        return ((*next(stream), None) for _ in range(count))
    return _merged([(kind, Stream(values, start, rng)) for kind, values in kinds], count)


def _merged(streams, count):
    heads = [(*next(stream), kind) for kind, stream in streams]
    for _ in range(count):
        index = min(range(len(heads)), key=lambda i: heads[i][0])
        yield heads[index]
        kind, stream = streams[index]
        heads[index] = (*next(stream), kind)
