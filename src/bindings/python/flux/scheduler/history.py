# SPDX-License-Identifier: LGPL-3.0-or-later
"""Run times of past jobs, and predictions for similar ones.

Users request more time than needed, often ten times as much, and submit the same job again and
again. So the mean of the last two run times of a class of jobs is a better estimate than the limit
(Tsafrir, Etsion and Feitelson 2007). `RunTimes` keeps just these, for the most recently used
classes.

A promise must never rest on a prediction, which is wrong every other time. Use it to rank jobs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, Callable, Optional

#: Number of run times kept and averaged per class. Two gave the best results: users change their
#: programs, and a longer memory adapts slowly.
RUNS_PER_CLASS = 2

#: Maximum number of classes kept, the most recently used; about 200 bytes each. A busy site has a
#: few thousand in a month.
MAX_CLASSES = 20000

#: Maximum number of these for one user: jobs that all differ in their limits would evict other
#: users' classes.
MAX_CLASSES_OF_USER = 1000

#: Minimum expected run time in seconds: ranks divide by it.
LEAST_RUN_S = 1.0

#: Expected run time of a job without a limit, in seconds.
NO_LIMIT_S = 365 * 86400.0

#: Maximum number of cached predictions.
MAX_ANSWERS = 20000

#: Number of classes per part, see `RunTimes.parts`.
CLASSES_PER_PART = 256

#: Returns the classes of (userid, size, limit), from the narrowest to the widest.
Classes = Callable[[Any, int, float], Iterable[Hashable]]


def narrow_to_wide(userid: Any, size: int, limit: float) -> Sequence[Hashable]:
    """Return the classes of ``predict=class``: a user's jobs of the same size and limit; of the
    same limit; all."""
    return (userid, size, limit), (userid, limit), (userid,)


def user_only(userid: Any, size: int, limit: float) -> Sequence[Hashable]:
    """Return the class of ``predict=last2``: all jobs of a user."""
    return ((userid,),)


def expected_run(guess: Any, limit: float) -> float:
    """Return a job's expected run time in seconds: the prediction, bounded by `LEAST_RUN_S` and its
    limit; the limit, if the prediction is None or not a time."""
    expected = limit if limit < NO_LIMIT_S else NO_LIMIT_S
    # NaN fails this comparison too.
    if guess is not None and isinstance(guess, (int, float)) and 0 <= guess < expected:
        expected = guess
    return expected if expected > LEAST_RUN_S else LEAST_RUN_S


class RunTimes:
    """The last run times of each class of jobs.

    By default each user has separate classes, so a user's jobs do not affect predictions for
    others.

    Args:
        classes: returns the classes of (userid, size in cores, limit in seconds), from the
            narrowest to the widest. Classes kept across restarts are tuples of str, int, float or
            None
        most (int): maximum number of classes

    Attributes:
        classes: as given; a site may replace it before the first job ends
        seen (int): number of run times learnt
    """

    def __init__(self, classes: Classes = narrow_to_wide, most: int = MAX_CLASSES) -> None:
        self.classes = classes
        self.seen = 0
        self._most = most
        self._runs: OrderedDict[Hashable, tuple[float, ...]] = OrderedDict()
        # The user from whose job a class was first learnt, and each user's classes. In both dicts
        # of classes the most recently used is last.
        self._owners: dict[Hashable, Any] = {}
        self._owned: dict[Any, OrderedDict[Hashable, None]] = {}
        # Predictions made since the user's last job ended: user -> {(size, limit): prediction}.
        self._answers: dict[Any, dict[tuple[int, float], Optional[float]]] = {}
        self._answered = 0

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self._runs)

    def learn(self, userid: Any, size: int, limit: float, run: float) -> None:
        """Learn from a job that ended after `run` seconds.  O(classes of a job).

        Negative, infinite and NaN values are ignored.
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
        """Set the run times of a class, and mark it as just used."""
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
        """Return the mean of the last two run times of such a job's narrowest class with two, in
        seconds, or None. Cached until a job of the user ends.
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
        """Yield the classes as lists fit for JSON, `CLASSES_PER_PART` each: class, run times, user.
        Run times learnt meanwhile are not included."""
        kept = list(self._runs.items())
        for at in range(0, len(kept), CLASSES_PER_PART):
            yield [
                [list(kind), list(runs), self._owners.get(kind)]
                for kind, runs in kept[at : at + CLASSES_PER_PART]
                if isinstance(kind, tuple) and all(map(_storable, kind))
            ]

    def restore(self, stored: Any) -> None:
        """Restore the concatenated `parts`; run times learnt since take precedence. Raises
        ValueError if the form is not that of `parts`."""
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
    """Accuracy of predictions, over ended jobs.

    Attributes:
        jobs (int): number of jobs with a prediction
        underpredicted (int): number of those that ran longer
        accuracy (float): sum over these jobs of the shorter time divided by the longer one; 1 for
            each exact prediction (Tsafrir et al. 2007)
    """

    def __init__(self) -> None:
        self.jobs = 0
        self.underpredicted = 0
        self.accuracy = 0.0

    def compare(self, predicted: Any, limit: float, run: float) -> None:
        """Add a job with a limit that ran for `run` seconds. The prediction counts as used, see
        `expected_run`."""
        predicted = expected_run(predicted, limit)
        self.jobs += 1
        self.underpredicted += run > predicted
        self.accuracy += min(predicted, run) / max(predicted, run)

    def stats(self) -> dict[str, Any]:
        """Return, for ``stats``: number of jobs, mean accuracy, and share of jobs that ran longer
        than predicted."""
        jobs = max(1, self.jobs)
        return {
            "jobs": self.jobs,
            "accuracy": self.accuracy / jobs,
            "underpredicted": self.underpredicted / jobs,
        }


def _storable(part: Any) -> bool:
    """Whether a part of a class is unchanged by a round trip through JSON."""
    return (
        part is None or isinstance(part, (str, int)) or (isinstance(part, float) and isfinite(part))
    )
