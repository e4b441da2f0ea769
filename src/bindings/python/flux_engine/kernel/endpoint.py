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
        self.uuid = f"00000000-0000-0000-0000-{next(kernel.serial):012x}"
        self.userid = userid
        self.rolemask = rolemask
        self.used = set()
        self.unanswered = {}
        self.closed = False

    def receive(self, msg):
        """Take one message; called by the hub, in the order the messages were sent."""
        raise NotImplementedError
