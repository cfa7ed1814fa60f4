"""A grid of nodes in this process: Flower's messages, without its network."""

import itertools
from types import SimpleNamespace

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid


class Node:
    def __init__(self, app, config, run_config=None):
        self.app, self.config, self.run_config = app, config, run_config or {}
        self.alive = True
        self.fault = None
        """Called with each message; what it returns is the reply, unless that is None."""


class InProcessGrid(Grid):
    """Calls the ClientApp of a node when a message for it is pushed."""

    def __init__(self, nodes):
        self.nodes = dict(enumerate(nodes, start=101))
        self.replies = {}
        self.numbers = itertools.count(1)
        self.pushed = []

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        return SimpleNamespace(run_id=7)

    def create_message(self, *_, **__):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def _push(self, message):
        node = self.nodes.get(message.metadata.dst_node_id)
        if node is None:
            return ""
        identity = f"m{next(self.numbers)}"
        message.metadata.__dict__["_message_id"] = identity
        self.pushed.append((message.metadata.dst_node_id, message))
        if not node.alive:
            return identity
        reply = node.fault(message) if node.fault else None
        if reply is None:
            about = message.metadata.dst_node_id, node.config, RecordDict(), node.run_config
            context = Context(1, *about)
            reply = node.app(message, context)
        if reply is not False:  # False: it never answers
            self.replies[identity] = reply
        return identity

    def pull_messages(self, message_ids):
        return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def failing(code):
    return lambda message: Message(Error(code, "as told"), reply_to=message)
