"""The command ``flux sched``: asks the scheduler's services, and shows what they answer."""
