"""``flux_msg_t``: messages, access to their fields (RFC 3); sending, receiving and answering.

A message is the kernel's own object.  Python counts the references, so reference counting is a no-op here.
"""

import errno
import os

from _flux.function import failure, function, functions, itself, nothing
from _flux.futures import ask
from flux_engine.kernel import message
from flux_engine.kernel.message import Message


@function("flux_msg_t *flux_msg_create (int type)")
def flux_msg_create(type):
    return Message(_kind(type), None)


def _kind(type):
    if type not in message.TYPE_NAMES:
        raise failure(errno.EINVAL)
    return type


@function("int flux_msg_set_type (flux_msg_t *msg, int type)")
def flux_msg_set_type(msg, type):
    msg.type = _kind(type)


def _topic(msg):
    if msg.topic is None:
        raise failure(errno.EPROTO)
    return msg.topic


def _matchtag(msg):
    if msg.type not in (message.REQUEST, message.RESPONSE):
        raise failure(errno.EPROTO)
    return msg.matchtag


def _same_client(notice, msg):
    """Whether a disconnect notice is about the sender of a request (RFC 6)."""
    return notice.sender is msg.sender and (
        bool(notice.rolemask & message.ROLE_OWNER) or notice.userid == msg.userid
    )


functions(
    {
        "const char *flux_msg_typestr (int type)": lambda type: message.TYPE_NAMES.get(type, "unknown"),
        "bool flux_msg_has_payload (const flux_msg_t *msg)": lambda msg: msg.payload_str is not None,
        "bool flux_disconnect_match (const flux_msg_t *msg1, const flux_msg_t *msg2)": _same_client,
        "int flux_msg_set_userid (flux_msg_t *msg, uint32_t id)": lambda msg, id: setattr(msg, "userid", id),
        "int flux_msg_set_rolemask (flux_msg_t *msg, uint32_t mask)": lambda msg, mask: setattr(msg, "rolemask", mask),
    }
)  # fmt: skip
functions(
    {
        "int flux_msg_get_type (const flux_msg_t *msg, int *value)": lambda msg: msg.type,
        "int flux_msg_get_topic (const flux_msg_t *msg, const char **value)": _topic,
        "int flux_msg_get_string (const flux_msg_t *msg, const char **value)": lambda msg: msg.payload_str,
        "int flux_msg_get_userid (const flux_msg_t *msg, uint32_t *value)": lambda msg: msg.userid,
        "int flux_msg_get_rolemask (const flux_msg_t *msg, uint32_t *value)": lambda msg: msg.rolemask,
        "int flux_msg_get_matchtag (const flux_msg_t *msg, uint32_t *value)": _matchtag,
    },
    out="value",
)  # fmt: skip
functions(
    {
        "void flux_msg_destroy (flux_msg_t *msg)": nothing,
        "const flux_msg_t *flux_msg_incref (const flux_msg_t *msg)": itself,
        "void flux_msg_decref (const flux_msg_t *msg)": nothing,
    },
    null="msg",
)
functions(
    {
        "int flux_msg_set_topic (flux_msg_t *msg, const char *s)": lambda msg, s: setattr(msg, "topic", s),
        "int flux_msg_set_string (flux_msg_t *msg, const char *s)": lambda msg, s: msg.set_text(s),
        "flux_msg_t *flux_event_encode (const char *topic, const char *s)":
            lambda topic, s: Message(message.EVENT, topic, s),
    },
    null="s",
)  # fmt: skip


@function(
    "int flux_msg_get_payload (const flux_msg_t *msg, const void **buf, size_t *size)",
    out="buf size",
)
def flux_msg_get_payload(msg):
    text = msg.payload_str
    if text is None:
        raise failure(errno.EPROTO)
    # The size includes the terminating zero.
    return text, msg.payload_size + 1


def _decode(msg, kind):
    if msg.type != kind:
        raise failure(errno.EPROTO)
    return _topic(msg), msg.payload_str


def _decode_response(msg):
    if msg.errnum:
        raise failure(msg.errnum)
    return _decode(msg, message.RESPONSE)


functions(
    {
        "int flux_request_decode (const flux_msg_t *msg, const char **topic, const char **s)":
            lambda msg: _decode(msg, message.REQUEST),
        "int flux_response_decode (const flux_msg_t *msg, const char **topic, const char **s)": _decode_response,
        "int flux_event_decode (const flux_msg_t *msg, const char **topic, const char **s)":
            lambda msg: _decode(msg, message.EVENT),
    },
    null="topic s",
    out="topic s",
)  # fmt: skip


# -- sending -----------------------------------------------------------------------------------------------


@function("int flux_send (flux_t *h, const flux_msg_t *msg, int flags)")
def flux_send(h, msg, flags):
    if h.task.closed:
        raise failure(errno.EPIPE)
    if msg.type == message.EVENT:
        payload = {"topic": msg.topic}
        if msg.payload_str is not None:
            payload["payload"] = msg.payload
        ask(h, "event.publish", payload)
    elif msg.type == message.REQUEST:
        h.forward(msg)
    elif msg.type == message.RESPONSE:
        # Its receiver would be in its route, which `flux_respond` knows.
        raise failure(errno.EHOSTUNREACH)
    else:
        raise failure(errno.EINVAL)


@function("int flux_respond (flux_t *h, const flux_msg_t *request, const char *s)", null="s")
def flux_respond(h, request, s):
    h.kernel.respond(request, request.response(s), h.task)


@function(
    "int flux_respond_error (flux_t *h, const flux_msg_t *request, int errnum, const char *errstr)",
    null="errstr",
)
def flux_respond_error(h, request, errnum, errstr):
    answer = request.error_response(errnum, errstr or os.strerror(errnum))
    h.kernel.respond(request, answer, h.task)


@function("int flux_event_subscribe (flux_t *h, const char *topic)")
def flux_event_subscribe(h, topic):
    ask(h, "event.subscribe", {"topic": topic})


@function("int flux_event_unsubscribe (flux_t *h, const char *topic)")
def flux_event_unsubscribe(h, topic):
    ask(h, "event.unsubscribe", {"topic": topic})
