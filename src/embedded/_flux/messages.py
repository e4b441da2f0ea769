"""``flux_msg_t``: messages, access to their fields (RFC 3); sending, receiving and answering.

A message is the kernel's own object.  Python counts the references, so reference counting is a no-op here.
"""

import errno
import os

from _flux.function import failure, function, functions, itself, nothing
from _flux.futures import succeed
from flux_engine.kernel import message
from flux_engine.kernel.message import Message


def _kind(type):
    if type not in message.TYPE_NAMES:
        raise failure(errno.EINVAL)
    return type


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
        "flux_msg_t *flux_msg_create (int type)": lambda type: Message(_kind(type), None),
        "int flux_msg_set_type (flux_msg_t *msg, int type)": lambda msg, type: setattr(msg, "type", _kind(type)),
        "const char *flux_msg_typestr (int type)": lambda type: message.TYPE_NAMES.get(type, "unknown"),
        "bool flux_msg_has_payload (const flux_msg_t *msg)": lambda msg: msg.payload_str is not None,
        "bool flux_disconnect_match (const flux_msg_t *msg1, const flux_msg_t *msg2)": _same_client,
        "int flux_msg_set_userid (flux_msg_t *msg, uint32_t id)": lambda msg, id: setattr(msg, "userid", id),
        "int flux_msg_set_rolemask (flux_msg_t *msg, uint32_t mask)": lambda msg, mask: setattr(msg, "rolemask", mask),
        "int flux_msg_get_type (const flux_msg_t *msg, out int *value)": lambda msg: msg.type,
        "int flux_msg_get_topic (const flux_msg_t *msg, out const char **value)": _topic,
        "int flux_msg_get_string (const flux_msg_t *msg, out const char **value)": lambda msg: msg.payload_str,
        "int flux_msg_get_userid (const flux_msg_t *msg, out uint32_t *value)": lambda msg: msg.userid,
        "int flux_msg_get_rolemask (const flux_msg_t *msg, out uint32_t *value)": lambda msg: msg.rolemask,
        "int flux_msg_get_matchtag (const flux_msg_t *msg, out uint32_t *value)": _matchtag,
        "void flux_msg_destroy (opt flux_msg_t *msg)": nothing,
        "const flux_msg_t *flux_msg_incref (opt const flux_msg_t *msg)": itself,
        "void flux_msg_decref (opt const flux_msg_t *msg)": nothing,
        "int flux_msg_set_topic (flux_msg_t *msg, opt const char *s)": lambda msg, s: setattr(msg, "topic", s),
        "int flux_msg_set_string (flux_msg_t *msg, opt const char *s)": lambda msg, s: msg.set_text(s),
        "flux_msg_t *flux_event_encode (const char *topic, opt const char *s)":
            lambda topic, s: Message(message.EVENT, topic, s),
    }
)  # fmt: skip


@function
def flux_msg_get_payload(msg):
    """int flux_msg_get_payload (const flux_msg_t *msg, out const void **buf, out size_t *size)"""
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
        "int flux_request_decode (const flux_msg_t *msg, out opt const char **topic, out opt const char **s)":
            lambda msg: _decode(msg, message.REQUEST),
        "int flux_response_decode (const flux_msg_t *msg, out opt const char **topic, out opt const char **s)": _decode_response,
        "int flux_event_decode (const flux_msg_t *msg, out opt const char **topic, out opt const char **s)":
            lambda msg: _decode(msg, message.EVENT),
    }
)  # fmt: skip


# -- sending -----------------------------------------------------------------------------------------------


@function
def flux_send(h, msg, flags):
    """int flux_send (flux_t *h, const flux_msg_t *msg, int flags)"""
    if h.task.closed:
        raise failure(errno.EPIPE)
    if msg.type == message.EVENT:
        payload = {"topic": msg.topic}
        if msg.payload_str is not None:
            payload["payload"] = msg.payload
        succeed(h, "event.publish", payload)
    elif msg.type == message.REQUEST:
        h.forward(msg)
    elif msg.type == message.RESPONSE:
        # Its receiver would be in its route, which `flux_respond` knows.
        raise failure(errno.EHOSTUNREACH)
    else:
        raise failure(errno.EINVAL)


@function
def flux_respond_error(h, request, errnum, errstr):
    """int flux_respond_error (flux_t *h, const flux_msg_t *request, int errnum, opt const char *errstr)"""
    answer = request.error_response(errnum, errstr or os.strerror(errnum))
    h.kernel.respond(request, answer, h.task)


functions(
    {
        "int flux_respond (flux_t *h, const flux_msg_t *request, opt const char *s)":
            lambda h, request, s: h.kernel.respond(request, request.response(s), h.task),
        "int flux_event_subscribe (flux_t *h, const char *topic)":
            lambda h, topic: succeed(h, "event.subscribe", {"topic": topic}),
        "int flux_event_unsubscribe (flux_t *h, const char *topic)":
            lambda h, topic: succeed(h, "event.unsubscribe", {"topic": topic}),
    }
)  # fmt: skip
