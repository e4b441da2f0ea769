# SPDX-License-Identifier: LGPL-3.0-or-later
"""Service ``kvs-watch``: the KVS's watches for requests in the form of a real one.

====================  ============================================================================
method                payload -> response
====================  ============================================================================
lookup                ``{namespace, key, flags}`` -> ``{val}``, an object of RFC 11. With the flag
                      FLUX_KVS_WATCH and streaming: now and after every change, what was added with
                      WATCH_APPEND; ENOENT for a key that is not there, unless it is to be waited for
                      (WAITCREATE), and when it goes; ENODATA after `cancel`
cancel                ``{matchtag}``, no response: ends that lookup of the sender
====================  ============================================================================
"""

import base64
import errno

from flux_engine.kernel.service import Service, request

WATCH, WAITCREATE, FULL, UNIQ, APPEND = 4, 8, 64, 128, 256
FORM = {"namespace": str, "key": str, "flags": int}


class KvsWatch(Service):
    """``kvs-watch``."""

    name = "kvs-watch"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self._followed = {}  # (sender, matchtag) -> (request, future)

    @request("lookup", form=FORM)
    def lookup(self, msg):
        body, flags = msg.body, msg.body["flags"]
        if flags & WATCH and not msg.streaming:
            text = "KVS watch request rejected without streaming RPC flag"
            raise OSError(errno.EPROTO, text)
        if not flags & WATCH and flags & (FULL | UNIQ | APPEND):
            raise OSError(errno.EINVAL, "Must set KVS watch flag with other watch flags")
        payload = {"namespace": body["namespace"], "key": body["key"]}
        if not flags & WATCH:
            self.rpc("kvs.lookup", payload).then(self._found, msg)
            return
        payload["waitcreate"] = bool(flags & WAITCREATE)
        payload["append"] = bool(flags & APPEND)
        payload["repeat"] = not flags & UNIQ
        future = self.rpc("kvs.watch", payload, streaming=True)
        self._followed[msg.sender, msg.matchtag] = (msg, future)
        future.then(self._found, msg)

    def _found(self, future, msg):
        try:
            text = future.body["value"]
        except OSError as exc:
            self._followed.pop((msg.sender, msg.matchtag), None)
            self.respond_error(msg, exc.errno)
            return
        data = base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()
        self.respond(msg, {"val": {"ver": 1, "type": "val", "data": data}})
        if (msg.sender, msg.matchtag) in self._followed:
            future.reset()

    @request("cancel", form={"matchtag": int})
    def cancel(self, msg):
        found = self._followed.pop((msg.sender, msg.body["matchtag"]), None)
        if found is not None:
            self._drop(found[1])
            self.respond_error(found[0], errno.ENODATA)

    @request("disconnect")
    def disconnect(self, msg):
        for key in [key for key in self._followed if key[0] is msg.sender]:
            self._drop(self._followed.pop(key)[1])

    def _drop(self, future):
        self.notify("kvs.watch-cancel", {"matchtag": future.matchtag})
        future.stop()
