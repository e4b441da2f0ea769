"""Endpoints: the senders and receivers of messages."""

from flux_engine.kernel import message


class Endpoint:
    """Anything that sends and receives messages: a service, a module, a client of the socket.

    Attributes:
        name (str): for logs and error texts
        uuid (str): the sender identity
        userid, rolemask (int): credentials of its requests
        used (set): services it has ever addressed; each gets a disconnect notice when it goes
        unanswered (dict): requests with a matchtag it received and still owes an answer
    """

    def __init__(self, kernel, name, userid=message.OWNER, rolemask=message.OWNER_ROLES):
        self.kernel = kernel
        self.name = name
        digits = f"{next(kernel.serial):032x}"
        self.uuid = "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])
        self.userid = userid
        self.rolemask = rolemask
        self.used = set()
        self.unanswered = {}
        self.closed = False

    def receive(self, msg):
        """Take one message; called by the hub, in the order the messages were sent."""
        raise NotImplementedError
