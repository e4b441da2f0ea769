"""The life of a scheduler: from the first registration to the end of the acquire stream."""

import gc

from flux.scheduler import host
from flux.scheduler.pools import RequestParser, apply_update, make_pool

#: Collections of the middle generation between two full ones. A full one walks every pending job,
#: which takes 100 ms for some ten thousand, and finds nothing: a job leaves no cycles behind.
FULL_COLLECTIONS = 10000


class Running:
    """The part of `Scheduler` that starts it and follows the resources it has."""

    def run(self):
        """Register the services, take over the resources, and schedule until told to stop.

        Raises:
            OSError: a step of the start failed
        """
        try:
            self._start()
        except Exception as exc:
            self.log.critical(f"cannot start: {exc}")
            raise
        super().run()

    def _start(self):
        handle = self.handle
        handle.service_register("sched").get()
        handle.service_register("feasibility").get()
        self.set_running()
        self._acquire, first = host.acquire(handle)
        self._pool = self._make_pool(first["resources"])
        self._parser = RequestParser(self._pool)
        self._pool.mark_down("all")
        self._update(first)
        host.hello(self, host.running_jobs(handle, self.hello_partial_ok))
        host.ready(handle, self.queue_depth)
        self._acquire.then(self._resources_changed)
        if gc.isenabled():
            gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTIONS)
        pool = self._pool
        self.log.info(
            f"ready: queue-depth={self.queue_depth} log-level={self.log.level_name} pool-class={self._pool_name()} Rv{pool.version} {pool.dumps()}"
        )

    def _make_pool(self, R):
        """Make the pool for the instance's resources (an R dict), of the class that is configured, that
        R's writer names, or the usual one."""
        return make_pool(self, R)

    def _pool_name(self):
        pool = self._pool
        return getattr(getattr(pool, "impl", pool), "name", None) or type(pool).__name__

    def _resources_changed(self, future):
        try:
            update = future.get()
            future.reset()
            if not isinstance(update, dict):
                raise ValueError("the response is no object")
        except Exception as exc:
            self.log.critical(f"resource.acquire: {exc}: the scheduler ends here")
            self.stop()
            return
        self._events += 1
        self._update(update)
        self._guard("ranks_changed", self._ranks_changed, not update.keys() <= {"up", "expiration"})
        self._guard("resource_update", self.resource_update)
        self._request_schedule()

    def _ranks_changed(self, lost):
        """Ranks came up or, if `lost`, went down, left or changed; for what the library knows of them."""

    def _update(self, update):
        helpful, errors = apply_update(self._pool, update, self.log, self._warned)
        if helpful:
            self.released()
        for key, exc in errors:
            self._mishap(f"resource update: {key}={update[key]!r}: {exc}")

    def _kvs_lost(self, keys):
        """The KVS has refused R for a minute. The jobs wait for the next scheduler: end in order."""
        self.log.error("not stored: {}".format(", ".join(keys)))
        self.log.critical("the KVS stays out of order: the scheduler ends here")
        self.stop()
