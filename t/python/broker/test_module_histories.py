# SPDX-License-Identifier: LGPL-3.0-or-later
"""Modules loaded, unloaded, killed and crashing at random: every request is answered, once."""

import random
from collections import Counter

import pytest
from broker_help import GOOD

NAMES = ("one", "two", "three")
ACTIONS = "load load remove kill hello park crash stopok stoperr ask turn settle".split()

#: a module that asks another one, and may be blocked by it
ASKING = """
    from flux.brokermod import BrokerModule, request_handler
    class M(BrokerModule):
        @request_handler("ask")
        def ask(self, msg):
            try:
                self.handle.rpc(msg.payload["topic"]).get()
            except OSError:
                pass
            self.handle.respond(msg, {})
"""


@pytest.mark.parametrize("seed", range(25))
def test_history(broker, capfd, seed):
    rng = random.Random(seed)
    kernel = broker.kernel
    good, asking = broker.file("good.py", GOOD), broker.file("asking.py", ASKING)
    broker.call("module.load", {"path": asking, "args": []})
    answers = Counter()
    topics = []

    def ask(topic, payload=None):
        future = broker.handle.rpc(topic, payload)
        # Callbacks need our reactor. The answer must be there, and no second one may come.
        arrive, number = future.arrive, len(topics)
        future.arrive = lambda msg: (answers.update([number]), arrive(msg))
        topics.append(topic)

    for _ in range(40):
        name = rng.choice(NAMES)
        action = rng.choice(ACTIONS)
        if action == "load":
            ask("module.load", {"path": good, "name": name, "args": []})
        elif action == "remove":
            ask("module.remove", {"name": name})
        elif action == "kill":
            if name in broker.modules.table:
                broker.modules.kill(name)
        elif action == "ask":
            ask("asking.ask", {"topic": f"{name}.{rng.choice(['hello', 'park', 'crash'])}"})
        elif action == "turn":
            target = kernel.turns + rng.randint(1, 4)
            kernel.run(until=lambda: kernel.turns >= target or not kernel.ready)
        elif action == "settle":
            broker.run()
        else:
            ask(f"{name}.{action}")
    broker.run()
    for name in NAMES:
        broker.handle.rpc("module.remove", {"name": name})
    broker.run()
    assert [topic for number, topic in enumerate(topics) if answers[number] != 1] == []
    assert set(broker.loaded()).isdisjoint(NAMES)
    assert not set(NAMES) & set(kernel.services)
    capfd.readouterr()
