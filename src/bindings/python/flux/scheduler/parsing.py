"""From a jobspec to what a pool can allocate, once for all jobs that ask for the same."""

import marshal

#: Distinct jobspecs to remember. Jobs come in series; a wider memory finds little more.
REMEMBERED = 4096


class RequestParser:
    """Parses jobspecs, giving equal ones one request object.

    Args:
        pool (ResourcePool): whose ``parse_resource_request()`` does the work
    """

    def __init__(self, pool):
        self.pool = pool
        self._known = {}

    def parse(self, jobspec):
        """The pool's request for `jobspec` (a dict), to be treated as read-only.

        Raises:
            ValueError: the jobspec cannot be parsed, for whatever reason; the text says which
        """
        if not isinstance(jobspec, dict):
            raise ValueError("jobspec must be an object, not {}".format(type(jobspec).__name__))
        try:
            # Version 2 of the format has no back references, so equal objects give equal bytes.
            key = marshal.dumps(jobspec, 2)
        except ValueError:
            raise ValueError("jobspec is nested too deeply") from None
        request = self._known.get(key)
        if request is None:
            request = self._parse(jobspec)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = request
        return request

    def _parse(self, jobspec):
        try:
            return self.pool.parse_resource_request(jobspec)
        except ValueError:
            raise
        except KeyError as exc:
            raise ValueError("missing key {}".format(exc)) from exc
        except RecursionError:
            raise ValueError("jobspec is nested too deeply") from None
        except Exception as exc:  # a jobspec is a user's: it must not get further than this
            raise ValueError("{}: {}".format(type(exc).__name__, exc)) from exc
