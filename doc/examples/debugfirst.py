"""Jobs of half an hour or less first, and a latest start for them within two hours."""

from flux.scheduler.policies import Backfill


class DebugFirst(Backfill):
    def rank(self, job):
        return (job.limit > 1800) * 1e6 + super().rank(job)

    def latest_start(self, job):
        return job.t_submit + (7200 if job.limit <= 1800 else self.within)


def mod_main(h, *args):
    DebugFirst(h, "rank=expansion", "promise=all", *args).run()
