# SPDX-License-Identifier: LGPL-3.0-or-later
"""How long jobs ran, and how long others like them may be expected to.

Users ask for more time than their jobs need, often for ten times as much, and submit the same job
again and again. So the mean of the last two run times of a class of jobs is a better guess than a
limit (Tsafrir, Etsion and Feitelson 2007). `RunTimes` keeps just these, for the classes used last.

A promise must never rest on a prediction: it is wrong every other time. Rank jobs by it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, Callable, Optional

#: Run times of a class that are remembered, and averaged. Two is what was measured best: users
#: change their programs, and longer memories are slow to follow.
RUNS_PER_CLASS = 2

#: Classes that are remembered, the ones used last: some 200 bytes each. A busy site has a few
#: thousand in a month.
MAX_CLASSES = 20000

#: The most of these for the jobs of one user: a user whose jobs all differ in their limits would
#: evict those of all others.
MAX_CLASSES_OF_USER = 1000

#: The least expected run time, seconds: ranks divide by it.
LEAST_RUN_S = 1.0

#: How long a job without a limit is expected to run, seconds.
NO_LIMIT_S = 365 * 86400.0

#: Predictions that are remembered until they may have changed.
MAX_ANSWERS = 20000

#: Classes that are written as one part, see `RunTimes.parts`.
CLASSES_PER_PART = 256

#: Gives the classes of (userid, size, limit), from the narrowest to the widest.
Classes = Callable[[Any, int, float], Iterable[Hashable]]


def narrow_to_wide(userid: Any, size: int, limit: float) -> Sequence[Hashable]:
    """The classes of ``predict=class``: jobs of a user of the same size and limit; of the same limit;
    of the user."""
    return (userid, size, limit), (userid, limit), (userid,)


def user_only(userid: Any, size: int, limit: float) -> Sequence[Hashable]:
    """The class of ``predict=last2``: all jobs of a user."""
    return ((userid,),)


def expected_run(guess: Any, limit: float) -> float:
    """The expected run time of a job, in seconds: the prediction, at least
    `LEAST_RUN_S` and at most its limit; its limit, where that is nothing, or no time."""
    expected = limit if limit < NO_LIMIT_S else NO_LIMIT_S
    # A NaN fails this comparison, too.
    if guess is not None and isinstance(guess, (int, float)) and 0 <= guess < expected:
        expected = guess
    return expected if expected > LEAST_RUN_S else LEAST_RUN_S


class RunTimes:
    """The last run times of each class of jobs.

    A user's job is in classes of his own only, unless a function says otherwise: what one user's
    jobs do then changes nothing for others.

    Args:
        classes: function giving the classes of a job's userid, size (cores) and limit (seconds), from
            the narrowest to the widest: tuples of str, int, float or None, if they are to be kept
            over a restart
        most (int): classes to remember

    Attributes:
        classes: as given; a site may set its own before the first job ends
        seen (int): how many run times were learnt
    """

    def __init__(self, classes: Classes = narrow_to_wide, most: int = MAX_CLASSES) -> None:
        self.classes = classes
        self.seen = 0
        self._most = most
        self._runs: OrderedDict[Hashable, tuple[float, ...]] = OrderedDict()
        # Whose job a class was learnt of first, and for each user these classes; both dicts of
        # classes have the one used last at the end.
        self._owners: dict[Hashable, Any] = {}
        self._owned: dict[Any, OrderedDict[Hashable, None]] = {}
        # Answers since the user's last job ended, by user, then by size and limit.
        self._answers: dict[Any, dict[tuple[int, float], Optional[float]]] = {}
        self._answered = 0

    def __len__(self) -> int:
        """How many classes are remembered."""
        return len(self._runs)

    def learn(self, userid: Any, size: int, limit: float, run: float) -> None:
        """A job has ended after `run` seconds. O(classes of a job).

        Values that are no time (below 0, infinite, NaN) are not learnt.
        """
        if not isfinite(run) or run < 0:
            return
        self.seen += 1
        for kind in self.classes(userid, size, limit):
            known = self._runs.get(kind, ())
            self._remember(kind, (*known[1 - RUNS_PER_CLASS :], run), userid)
        if self.classes in (narrow_to_wide, user_only):
            self._answers.pop(userid, None)
        else:
            self._answers.clear()

    def _remember(self, kind: Hashable, runs: tuple[float, ...], userid: Any) -> None:
        """Set the run times of a class, which was used just now."""
        owner = self._owners.setdefault(kind, userid)
        owned = self._owned.setdefault(owner, OrderedDict())
        self._runs[kind] = runs
        self._runs.move_to_end(kind)
        owned[kind] = None
        owned.move_to_end(kind)
        if len(owned) > MAX_CLASSES_OF_USER:
            self._forget(next(iter(owned)))
        if len(self._runs) > self._most:
            self._forget(next(iter(self._runs)))

    def _forget(self, kind: Hashable) -> None:
        del self._runs[kind]
        owner = self._owners.pop(kind)
        del self._owned[owner][kind]
        if not self._owned[owner]:
            del self._owned[owner]

    def predict(self, userid: Any, size: int, limit: float) -> Optional[float]:
        """The mean of the last two run times of the narrowest class of such a job that has two, in
        seconds; None: there is none. A look-up in a table until a job of the user ends.
        """
        answers = self._answers.get(userid)
        if answers is None:
            answers = self._answers[userid] = {}
        try:
            return answers[size, limit]
        except KeyError:
            answer = None
            for kind in self.classes(userid, size, limit):
                runs = self._runs.get(kind, ())
                if len(runs) == RUNS_PER_CLASS:
                    answer = sum(runs) / RUNS_PER_CLASS
                    break
            self._answered += 1
            if self._answered >= MAX_ANSWERS:
                self._answers.clear()
                self._answered = 0
            else:
                answers[size, limit] = answer
            return answer

    # -- over a restart ----------------------------------------------------------------------------

    def parts(self) -> Iterator[list[Any]]:
        """The classes, as lists to be stored as JSON, `CLASSES_PER_PART` in each: a
        class, its run times, and its user. Run times learnt meanwhile are not in it."""
        kept = list(self._runs.items())
        for at in range(0, len(kept), CLASSES_PER_PART):
            yield [
                [list(kind), list(runs), self._owners.get(kind)]
                for kind, runs in kept[at : at + CLASSES_PER_PART]
                if isinstance(kind, tuple) and all(map(_storable, kind))
            ]

    def restore(self, stored: Any) -> None:
        """Restore the classes that `parts` gave, put together, before those learnt since.

        Raises:
            ValueError: it is not of the form that `parts` gives
        """
        try:
            restored = [
                (tuple(kind), tuple(map(float, runs))[-RUNS_PER_CLASS:], userid)
                for kind, runs, userid in stored
                if all(isfinite(run) and run >= 0 for run in runs)
            ]
            hash(tuple(restored))
        except (TypeError, ValueError) as exc:
            raise ValueError(f"the history cannot be read: {exc}") from None
        since = [(kind, runs, self._owners[kind]) for kind, runs in self._runs.items()]
        for kind, runs, userid in restored + since:
            self._remember(kind, runs, userid)
        self._answers.clear()


class PredictionScore:
    """How good predictions were, of the jobs that have ended.

    Attributes:
        jobs (int): jobs of which something was predicted
        underpredicted (int): those that ran longer than that
        accuracy (float): the sum, over these jobs, of the shorter of the two times by the longer one;
            1 for each prediction that was exact (Tsafrir et al. 2007)
    """

    def __init__(self) -> None:
        self.jobs = 0
        self.underpredicted = 0
        self.accuracy = 0.0

    def compare(self, predicted: Any, limit: float, run: float) -> None:
        """A job with a limit ran for `run` seconds. The prediction counts as it was used, see
        `expected_run`."""
        predicted = expected_run(predicted, limit)
        self.jobs += 1
        self.underpredicted += run > predicted
        self.accuracy += min(predicted, run) / max(predicted, run)

    def stats(self) -> dict[str, Any]:
        """For ``stats``: jobs, mean accuracy, and the share of jobs that ran longer than
        predicted."""
        jobs = max(1, self.jobs)
        return {
            "jobs": self.jobs,
            "accuracy": self.accuracy / jobs,
            "underpredicted": self.underpredicted / jobs,
        }


def _storable(part: Any) -> bool:
    """Whether a part of a class is the same after a way through JSON."""
    return (
        part is None or isinstance(part, (str, int)) or (isinstance(part, float) and isfinite(part))
    )
