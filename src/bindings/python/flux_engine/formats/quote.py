# SPDX-License-Identifier: LGPL-3.0-or-later
"""Input in error messages."""


def quote(value, limit=60):
    """Return a value's repr, cut to `limit` characters so that an error message stays one line."""
    if isinstance(value, str) and len(value) > limit:
        value = value[:limit] + "..."
    text = repr(value)
    return text if len(text) <= 2 * limit else text[: 2 * limit - 3] + "..."
