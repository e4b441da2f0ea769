"""What the scheduler answers when it is asked: why, when, what could start now, what is planned.

A question changes nothing, and costs a pass next to nothing:

- Answers come from the pool and from a copy of the plan that is at most a second old
  (`plan_snapshot.PlanSnapshot`); each says when that copy was made.
- What takes long is found a millisecond at a time, between which the scheduler does its work, and
  one question after the other (`question.Answering`). A long list is encoded entry by entry.

`desk.QueryService`, made by `PolicyScheduler`, has a method for each of the services ``sched.explain``,
``sched.when``, ``sched.windows``, ``sched.plan`` and ``sched.stats``; `why.PendingReason` finds out about one
job. Each method is a generator that yields where it may be interrupted, and returns the answer.

Times are seconds since the epoch; None stands for a time that nobody knows.
"""
