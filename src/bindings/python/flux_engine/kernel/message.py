"""Messages (RFC 3).

A payload is kept either as JSON text or as the object it was made from, and converted to the
other form only on demand: between two builtin services no JSON is ever written.
"""

import errno
import json
import os

from flux_engine.formats.form import check
from flux_engine.formats.jsontext import encoder

REQUEST, RESPONSE, EVENT, CONTROL = 1, 2, 4, 8
TYPE_NAMES = {REQUEST: "request", RESPONSE: "response", EVENT: "event", CONTROL: "control"}

FLAG_NORESPONSE = 0x04
FLAG_UPSTREAM = 0x10
FLAG_STREAMING = 0x40

NODEID_ANY = 0xFFFFFFFF

#: Errors of requests to a service that does not exist, or that ended before it answered.
NO_SERVICE = (errno.ENOSYS, errno.EHOSTUNREACH)

ROLE_OWNER, ROLE_USER, ROLE_LOCAL = 1, 2, 4
OWNER_ROLES = ROLE_OWNER | ROLE_LOCAL

OWNER = os.getuid()
#: The user id that stands for all users, as 32 bits.
ANY_USER = 0xFFFFFFFF

encode = encoder(ensure_ascii=False)

#: the format in which the bindings of a real Flux write payloads of scripts and modules
_encode_spaced = encoder(", ", ": ", ensure_ascii=False)


def payload_text(payload):
    """The text of a payload: None for none, str and bytes unchanged, else JSON (TypeError: it cannot be JSON)."""
    if payload is None or isinstance(payload, str):
        return payload
    if isinstance(payload, bytes):
        return payload.decode("utf-8", "surrogateescape")
    return _encode_spaced(payload)


class Message:
    """One request, response or event.

    Attributes:
        type (int): REQUEST, RESPONSE or EVENT
        topic (str): service and method, or the event's topic
        matchtag (int): pairs responses with their request; 0 where nothing does
        flags (int): FLAG_* bits
        errnum (int): of a response: 0 or a POSIX errno
        nodeid (int): of a request: a broker rank or NODEID_ANY
        userid, rolemask (int): credentials of the sender
        sender (Endpoint): the receiver of a response
    """

    __slots__ = (
        "type", "topic", "matchtag", "flags", "errnum", "nodeid", "userid", "rolemask", "sender", "_text", "_obj",
    )  # fmt: skip

    def __init__(self, type, topic, text=None, obj=None, matchtag=0, flags=0):
        self.type = type
        self.topic = topic
        self.matchtag = matchtag
        self.flags = flags
        self.errnum = 0
        self.nodeid = NODEID_ANY
        self.userid = OWNER
        self.rolemask = OWNER_ROLES
        self.sender = None
        self._text = text
        self._obj = obj

    # -- payload -----------------------------------------------------------------------------

    @property
    def has_payload(self):
        return self._text is not None or self._obj is not None

    @property
    def payload_str(self):
        """The payload as text, or None when there is none."""
        text = self._text
        if text is None and self._obj is not None:
            text = self._text = encode(self._obj)
        return text

    @property
    def payload_size(self):
        """Bytes of the payload's text; 0 when there is none."""
        text = self.payload_str or ""
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))

    @property
    def payload(self):
        """The payload, parsed anew at every access: the caller may change the result. TypeError: there is none."""
        return json.loads(self.payload_str)

    @property
    def body(self):
        """The payload as an object shared by all receivers of this message, read only; None when there is none."""
        obj = self._obj
        if obj is None and self._text is not None:
            obj = self._obj = json.loads(self._text)
        return obj

    @property
    def has_object(self):
        """Whether the payload, if there is one, is a JSON object, which RFC 3 demands."""
        try:
            return self.body is None or isinstance(self.body, dict)
        except (ValueError, RecursionError):
            return False

    def set_text(self, text):
        """Set the payload, a text or None."""
        self._text, self._obj = text, None

    # -- sender and flags -----------------------------------------------------------------------

    @property
    def streaming(self):
        return bool(self.flags & FLAG_STREAMING)

    @property
    def noresponse(self):
        return bool(self.flags & FLAG_NORESPONSE)

    @property
    def is_guest(self):
        """Whether the sender is not the instance owner."""
        return not self.rolemask & ROLE_OWNER

    # -- answers -----------------------------------------------------------------------------

    def response(self, text=None, obj=None):
        """A successful response to this request (not sent yet)."""
        return Message(RESPONSE, self.topic, text, obj, self.matchtag, self.flags & FLAG_STREAMING)

    def error_response(self, errnum, text=None):
        """An error response to this request (not sent yet)."""
        answer = self.response(text or None)
        answer.errnum = errnum
        return answer

    def __repr__(self):
        error = f" errnum={self.errnum}" if self.errnum else ""
        return (
            f"<{TYPE_NAMES[self.type]} {self.topic} tag={self.matchtag}{error} {self.payload_str}>"
        )


def error_of(msg):
    """The OSError that an error response stands for."""
    return OSError(msg.errnum, msg.payload_str or os.strerror(msg.errnum))


class Malformed(OSError):
    """A payload that its method does not accept.

    The sender is told ``Protocol error`` and no more, as by a real service; the details are logged
    at debug level.
    """

    def __init__(self, detail):
        super().__init__(errno.EPROTO, os.strerror(errno.EPROTO))
        self.detail = detail


def check_form(body, form, topic):
    """Check the payload of a request, by a form of `flux_engine.formats.form`. Malformed: it does not have that form."""
    try:
        check(body, form, topic)
    except ValueError as exc:
        raise Malformed(str(exc)) from None
