"""From a jobspec to what a pool can allocate, once for all jobs that ask for the same."""

import marshal
import re

#: In the place of a jobspec that JSON could not be parsed to for its depth.
TOO_DEEP = object()

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

    def parse(self, jobspec, read=None):
        """The pool's request for `jobspec` (a dict), to be treated as read-only.

        Args:
            jobspec (dict): what the job asks for
            read: returns the jobspec again; given that, the request need not keep it, which is what
                takes most of the memory of a pending job

        Raises:
            ValueError: the jobspec cannot be parsed, for whatever reason; the text says which
        """
        if jobspec is TOO_DEEP:
            raise ValueError("jobspec is nested too deeply")
        if not isinstance(jobspec, dict):
            raise ValueError(f"jobspec must be an object, not {type(jobspec).__name__}")
        try:
            # Version 2 of the format has no back references, so equal objects give equal bytes.
            key = marshal.dumps(jobspec, 2)
        except ValueError:
            raise ValueError("jobspec is nested too deeply") from None
        request = self._known.get(key)
        if request is None:
            request = self._parse(jobspec)
            if read is not None and hasattr(request, "with_jobspec"):
                request = request.with_jobspec(read)
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
            raise ValueError(f"missing key {exc}") from exc
        except RecursionError:
            raise ValueError("jobspec is nested too deeply") from None
        except Exception as exc:  # a jobspec is a user's: it must not get further than this
            raise ValueError(f"{type(exc).__name__}: {exc}") from exc


#: A string, a bracket, or the start of a number.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[0-9]+')


def id_of_deep_payload(text):
    """The top-level ``id`` of a JSON object that is nested too deeply for the parser.

    Returns:
        int, or None if there is none
    """
    depth = 0
    key = None
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
        elif depth == 1 and token[0] == '"':
            key = token
        elif depth == 1 and key == '"id"':
            return int(token)
    return None
