"""``flux_msg_t``: a message, what is read from one and put into it (RFC 3); sending, receiving and answering.

A message is the kernel's own object.  Python keeps count of who refers to it, so counting here does nothing.
"""

import errno
import fnmatch
import os

from _flux.cdata import NULL, bytes_of
from _flux.function import failure, function
from _flux.futures import ask
from flux_embedded.kernel import message
from flux_embedded.kernel.message import Message


@function("flux_msg_t *flux_msg_create (int type)")
def flux_msg_create(type):
    if type not in message.TYPE_NAMES:
        raise failure(errno.EINVAL)
    return Message(type, None)


@function("void flux_msg_destroy (flux_msg_t *msg)", null="msg")
def flux_msg_destroy(msg):
    pass


@function("const flux_msg_t *flux_msg_incref (const flux_msg_t *msg)", null="msg")
def flux_msg_incref(msg):
    return msg


@function("void flux_msg_decref (const flux_msg_t *msg)", null="msg")
def flux_msg_decref(msg):
    pass


@function("int flux_msg_get_type (const flux_msg_t *msg, int *type)")
def flux_msg_get_type(msg, type):
    type[0] = msg.type
    return 0


@function("int flux_msg_set_type (flux_msg_t *msg, int type)")
def flux_msg_set_type(msg, type):
    if type not in message.TYPE_NAMES:
        raise failure(errno.EINVAL)
    msg.type = type
    return 0


@function("const char *flux_msg_typestr (int type)")
def flux_msg_typestr(type):
    return message.TYPE_NAMES.get(type, "unknown").encode()


@function("int flux_msg_get_topic (const flux_msg_t *msg, const char **topic)")
def flux_msg_get_topic(msg, topic):
    topic[0] = _topic(msg)
    return 0


def _topic(msg):
    if msg.topic is None:
        raise failure(errno.EPROTO)
    return bytes_of(msg.topic)


@function("int flux_msg_set_topic (flux_msg_t *msg, const char *topic)", null="topic")
def flux_msg_set_topic(msg, topic):
    msg.topic = topic
    return 0


@function("bool flux_msg_has_payload (const flux_msg_t *msg)")
def flux_msg_has_payload(msg):
    return msg.payload_str is not None


@function("int flux_msg_get_string (const flux_msg_t *msg, const char **s)")
def flux_msg_get_string(msg, s):
    s[0] = _payload(msg)
    return 0


def _payload(msg):
    text = msg.payload_str
    return NULL if text is None else bytes_of(text)


@function("int flux_msg_set_string (flux_msg_t *msg, const char *s)", null="s")
def flux_msg_set_string(msg, s):
    msg.set_text(s)
    return 0


@function("int flux_msg_get_userid (const flux_msg_t *msg, uint32_t *userid)")
def flux_msg_get_userid(msg, userid):
    userid[0] = msg.userid
    return 0


@function("int flux_msg_set_userid (flux_msg_t *msg, uint32_t userid)")
def flux_msg_set_userid(msg, userid):
    msg.userid = userid
    return 0


@function("int flux_msg_get_rolemask (const flux_msg_t *msg, uint32_t *rolemask)")
def flux_msg_get_rolemask(msg, rolemask):
    rolemask[0] = msg.rolemask
    return 0


@function("int flux_msg_set_rolemask (flux_msg_t *msg, uint32_t rolemask)")
def flux_msg_set_rolemask(msg, rolemask):
    msg.rolemask = rolemask
    return 0


@function("int flux_msg_get_matchtag (const flux_msg_t *msg, uint32_t *matchtag)")
def flux_msg_get_matchtag(msg, matchtag):
    if msg.type not in (message.REQUEST, message.RESPONSE):
        raise failure(errno.EPROTO)
    matchtag[0] = msg.matchtag
    return 0


@function("int flux_msg_get_errnum (const flux_msg_t *msg, int *errnum)")
def flux_msg_get_errnum(msg, errnum):
    if msg.type != message.RESPONSE:
        raise failure(errno.EPROTO)
    errnum[0] = msg.errnum
    return 0


@function("int flux_msg_get_nodeid (const flux_msg_t *msg, uint32_t *nodeid)")
def flux_msg_get_nodeid(msg, nodeid):
    if msg.type != message.REQUEST:
        raise failure(errno.EPROTO)
    nodeid[0] = msg.nodeid
    return 0


@function("bool flux_msg_is_streaming (const flux_msg_t *msg)")
def flux_msg_is_streaming(msg):
    return msg.streaming


@function("bool flux_msg_is_noresponse (const flux_msg_t *msg)")
def flux_msg_is_noresponse(msg):
    return msg.noresponse


@function("bool flux_msg_is_local (const flux_msg_t *msg)")
def flux_msg_is_local(msg):
    return bool(msg.rolemask & message.ROLE_LOCAL)


def _decode(msg, kind, topic, s):
    if msg.type != kind:
        raise failure(errno.EPROTO)
    if topic is not None:
        topic[0] = _topic(msg)
    if s is not None:
        s[0] = _payload(msg)
    return 0


@function(
    "int flux_request_decode (const flux_msg_t *msg, const char **topic, const char **s)",
    null="topic s",
)
def flux_request_decode(msg, topic, s):
    return _decode(msg, message.REQUEST, topic, s)


@function(
    "int flux_response_decode (const flux_msg_t *msg, const char **topic, const char **s)",
    null="topic s",
)
def flux_response_decode(msg, topic, s):
    if msg.errnum:
        raise failure(msg.errnum)
    return _decode(msg, message.RESPONSE, topic, s)


@function(
    "int flux_event_decode (const flux_msg_t *msg, const char **topic, const char **s)",
    null="topic s",
)
def flux_event_decode(msg, topic, s):
    return _decode(msg, message.EVENT, topic, s)


@function("flux_msg_t *flux_event_encode (const char *topic, const char *s)", null="s")
def flux_event_encode(topic, s):
    return Message(message.EVENT, topic, s)


@function("flux_msg_t *flux_request_encode (const char *topic, const char *s)", null="s")
def flux_request_encode(topic, s):
    return Message(message.REQUEST, topic, s)


# -- sending -----------------------------------------------------------------------------------------------

O_NONBLOCK = 4


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
        # Whom it is for would stand in its route, which `flux_respond` knows.
        raise failure(errno.EHOSTUNREACH)
    else:
        raise failure(errno.EINVAL)
    return 0


@function("flux_msg_t *flux_recv (flux_t *h, struct flux_match match, int flags)")
def flux_recv(h, match, flags):
    def wanted(msg):
        return (
            msg.type & match.typemask
            and (not match.matchtag or msg.matchtag == match.matchtag)
            and (match.topic_glob is None or fnmatch.fnmatchcase(msg.topic, match.topic_glob))
        )

    return h.task.take_message(wanted, wait=not flags & O_NONBLOCK)


@function("int flux_respond (flux_t *h, const flux_msg_t *request, const char *s)", null="s")
def flux_respond(h, request, s):
    h.kernel.respond(request, request.response(s), h.task)
    return 0


@function(
    "int flux_respond_error (flux_t *h, const flux_msg_t *request, int errnum, const char *errstr)",
    null="errstr",
)
def flux_respond_error(h, request, errnum, errstr):
    answer = request.error_response(errnum, errstr or os.strerror(errnum))
    h.kernel.respond(request, answer, h.task)
    return 0


@function("int flux_event_subscribe (flux_t *h, const char *topic)")
def flux_event_subscribe(h, topic):
    ask(h, "event.subscribe", {"topic": topic})
    return 0


@function("int flux_event_unsubscribe (flux_t *h, const char *topic)")
def flux_event_unsubscribe(h, topic):
    ask(h, "event.unsubscribe", {"topic": topic})
    return 0
