# SPDX-License-Identifier: LGPL-3.0-or-later
"""Line styles: one for each of any number of policies."""

#: The colours that are easiest to distinguish, on light and on dark pages; further ones are
#: computed.
PALETTE = (
    ("#0b62a8", "#6cb4f0"), ("#c95a00", "#f5a25c"), ("#00795a", "#4fcaa6"), ("#8a3f8c", "#cf94d1"),
    ("#6f6500", "#d3c64e"), ("#b0224a", "#f4819f"), ("#2c8fb5", "#7fd0ee"), ("#55585c", "#b5bac0"),
)  # fmt: skip
DASHES = ("none", "7 3", "2 2.5", "10 3 2 3", "14 4", "5 2 1 2 1 2", "1 3")
#: Step in degrees between further hues: no two are equal.
GOLDEN_ANGLE = 137.508


def style(number):
    """Return the CSS class of the n-th policy, from 0."""
    return f"c{number}"


def colours(number):
    """Return (on light, on dark) for the n-th policy."""
    if number < len(PALETTE):
        return PALETTE[number]
    hue = (number * GOLDEN_ANGLE + 20) % 360
    return f"hsl({hue:.0f} 75% 33%)", f"hsl({hue:.0f} 75% 70%)"


def dash(number):
    """Return the dashes of its line; together with the colour they are unique."""
    return DASHES[(number + number // len(PALETTE)) % len(DASHES)]


def rules(count):
    """Return the style sheet for a number of policies."""
    light = "".join(f"--c{n}:{colours(n)[0]};" for n in range(count))
    dark = "".join(f"--c{n}:{colours(n)[1]};" for n in range(count))
    each = "".join(
        f".c{n}{{stroke:var(--c{n});stroke-dasharray:{dash(n)}}}"
        f".area.c{n},.band.c{n}{{fill:var(--c{n})}}th.c{n}{{color:var(--c{n})}}\n"
        for n in range(count)
    )
    return f":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{each}"
