# SPDX-License-Identifier: LGPL-3.0-or-later
"""Modules loaded, unloaded, killed and crashing at random: every request is answered, once."""

import random

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
    good, asking = broker.file("good.py", GOOD), broker.file("asking.py", ASKING)
    broker.call("module.load", {"path": asking, "args": []})
    answers = {}
    futures = []

    def answered(number):
        answers[number] = answers.get(number, 0) + 1

    def ask(topic, payload=None):
        future = broker.handle.rpc(topic, payload)
        # Callbacks need our reactor. The answer must be there, and no second one may come.
        arrive, number = future.arrive, len(futures)
        future.arrive = lambda msg: (answered(number), arrive(msg))
        futures.append((future, topic))

    for _ in range(40):
        name = rng.choice(NAMES)
        action = rng.choice(ACTIONS)
        if action == "load":
            ask("module.load", {"path": good, "name": name, "args": []})
        elif action == "remove":
            ask("module.remove", {"name": name})
        elif action == "kill":
            if name in broker.modules.table:
                broker.kill_module(name)
        elif action == "ask":
            ask("asking.ask", {"topic": f"{name}.{rng.choice(['hello', 'park', 'crash'])}"})
        elif action == "turn":
            target = broker.kernel.turns + rng.randint(1, 4)
            broker.kernel.run(
                until=lambda: broker.kernel.turns >= target or not broker.kernel.ready
            )  # noqa: B023
        elif action == "settle":
            broker.run()
        else:
            ask(f"{name}.{action}")
    broker.run()
    for name in NAMES:
        broker.handle.rpc("module.remove", {"name": name})
    broker.run()
    unanswered = [
        topic for number, (future, topic) in enumerate(futures) if answers.get(number) != 1
    ]
    assert unanswered == []
    assert set(broker.loaded()).isdisjoint(NAMES)
    assert not {"one", "two", "three"} & set(broker.kernel.services)
    capfd.readouterr()
