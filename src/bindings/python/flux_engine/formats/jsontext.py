# SPDX-License-Identifier: LGPL-3.0-or-later
"""JSON, without the json module's overhead for each call.

For texts as short as messages and events, `json.dumps` and `json.loads` spend
most of their time setting up an encoder or decoder; here that is set up once.
The results are the same.
"""

import json
from json import encoder as _json

try:
    from json.encoder import c_make_encoder as _make
except ImportError:  # another Python than CPython
    _make = None

_scan = json.JSONDecoder().scan_once


def encoder(item_separator=",", key_separator=":", ensure_ascii=True):
    """Return a function from an object to its JSON text.

    It raises TypeError for values that JSON cannot represent and ValueError for values
    that contain themselves or are nested too deeply.
    """
    plain = json.JSONEncoder(separators=(item_separator, key_separator), ensure_ascii=ensure_ascii)
    if _make is None:
        return plain.encode
    quote = _json.encode_basestring_ascii if ensure_ascii else _json.encode_basestring
    chunks = _make(
        None, plain.default, quote, None, key_separator, item_separator, False, False, True
    )
    join = "".join

    def encode(obj):
        try:
            return join(chunks(obj, 0))
        except RecursionError:
            raise ValueError("cannot be JSON: it contains itself or is nested too deeply") from None

    return encode


#: JSON without blanks, ASCII only
dumps = encoder()


def loads(text):
    """Return the object of a JSON text, like `json.loads`."""
    try:
        obj, end = _scan(text, 0)
        if end == len(text):
            return obj
    except (StopIteration, TypeError):
        pass
    return json.loads(text)
