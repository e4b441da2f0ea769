# SPDX-License-Identifier: LGPL-3.0-or-later
"""JSON text, without the json module's overhead for each call.

For texts as short as messages and events, `json.dumps` spends most of its time
setting up an encoder; here that is set up once. The results are the same.
"""

import json
from json import encoder as _json


def encoder(item_separator=",", key_separator=":", ensure_ascii=True):
    """Return a function from an object to its JSON text.

    It raises TypeError for values that JSON cannot represent and ValueError for values
    that contain themselves or are nested too deeply.
    """
    plain = json.JSONEncoder(separators=(item_separator, key_separator), ensure_ascii=ensure_ascii)
    quote = _json.encode_basestring_ascii if ensure_ascii else _json.encode_basestring
    chunks = _json.c_make_encoder(
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
