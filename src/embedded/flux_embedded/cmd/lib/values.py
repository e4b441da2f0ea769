"""Reading the values of submission options."""

import fnmatch
import json
import math
import os
import re
import string
import time

from flux_embedded.cmd.lib.errors import CommandError
from flux_embedded.formats import fsd, states

#: userid that stands for everybody
ANYONE = 0xFFFFFFFF
RLIMITS = (
    "cpu fsize data stack core nofile as rss nproc memlock msgqueue nice rtprio rttime sigpending"
).split()
#: limits that belong to the system the job runs on, not to the one it was submitted from
RLIMIT_DEFAULT = ["-memlock", "-msgqueue", "-nice", "-rtprio", "-rttime", "-sigpending"]


def duration(text):
    """Seconds as float; a bare number is minutes."""
    try:
        number = float(text)
    except ValueError:
        number = None
    if number is not None and number < 0:
        raise CommandError("duration must not be negative")
    try:
        seconds = fsd.parse(text)
    except ValueError:
        raise CommandError("invalid Flux standard duration") from None
    if not math.isfinite(seconds):
        raise CommandError("duration must be a normal, finite value")
    return seconds * 60 if text[-1:] in "0123456789." else seconds


def key_value(text):
    """``KEY=VALUE`` with VALUE as JSON if it is some, else as text; without ``=``: 1.

    ``^KEY=FILE`` takes the value from a JSON file.
    """
    key, equals, value = text.partition("=")
    if key.startswith("^") and not equals:
        raise CommandError(f"{text}: expected ^KEY=FILE")
    if not equals:
        return key, 1
    if key.startswith("^"):
        try:
            with open(value, encoding="utf-8") as file:
                return key[1:], json.load(file)
        except OSError as exc:
            raise CommandError(f"{text}: {exc.strerror}") from None
        except ValueError as exc:
            raise CommandError(f"{text}: {exc}") from None
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def user_id(text):
    """A user's id by name or number; ``all`` is everybody, None who asks.

    Raises:
        CommandError: there is no such user
    """
    if text is None:
        return os.getuid()
    if text == "all":
        return ANYONE
    if text.isdigit():
        return int(text)
    import pwd

    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        raise CommandError(f"unknown user {text}") from None


def state_mask(text, message="error parsing --states: {} is unknown"):
    """The bits of comma-separated names of states and of groups of them.

    Raises:
        CommandError: a name is not one: message, with the name put in
    """
    mask = 0
    for name in text.split(","):
        if name.lower() not in states.MASKS:
            raise CommandError(message.format(name))
        mask |= states.MASKS[name.lower()]
    return mask


def flags(texts):
    """The bit mask of ``--flags=debug,waitable``."""
    mask = 0
    for text in texts or ():
        for name in text.split(","):
            if name not in states.FLAG_NAMES:
                raise CommandError(f"--flags: Unknown flag {name}")
            mask |= states.FLAG_NAMES[name]
    return mask


def urgency(text):
    """A number, or default, hold, expedite; range is for the instance to check."""
    names = {"default": 16, "hold": 0, "expedite": 31}
    if text in names:
        return names[text]
    try:
        return int(text)
    except ValueError:
        raise CommandError(f"--urgency: invalid value '{text}'") from None


def dependency(text):
    """``SCHEME[:VALUE][?K=V&K=V]`` as a dependency object; numbers among V are numbers there."""
    scheme, _, value = text.partition(":")
    if not scheme:
        raise CommandError(f'Invalid dependency URI "{text}"')
    value, _, query = value.partition("?")
    result = {"scheme": scheme, "value": value}
    for pair in query.split("&") if query else ():
        key, _, val = pair.partition("=")
        result[key] = int(val) if re.fullmatch(r"-?\d+", val) else val
    return result


def signal_option(text):
    """``[SIG][@TIME]`` as the shell's signal option."""
    import signal

    name, _, left = text.partition("@")
    number = signal.SIGUSR1
    if name:
        number = signal_number(name)
        if number is None:
            raise CommandError(f"--signal={text}: signal '{name}' is invalid")
    try:
        seconds = fsd.parse(left) if left else 60.0
    except ValueError:
        raise CommandError(f"--signal={text}: invalid Flux standard duration") from None
    return {"signum": int(number), "timeleft": seconds}


def signal_number(name):
    """A signal by number or name, with or without SIG; None if there is none."""
    import signal

    if name.isdigit():
        return int(name) if 0 < int(name) < signal.NSIG else None
    name = name.upper()
    if not name.startswith("SIG"):
        name = "SIG" + name
    member = getattr(signal.Signals, name, None) if name in signal.Signals.__members__ else None
    return int(member) if member is not None else None


def begin_time(text):
    """A date, a time of day or ``+FSD`` as epoch seconds.

    A date without a time means this time of that day.

    Raises:
        CommandError: none of these.
    """
    now = time.time()
    text = text.strip()
    if not text:
        raise CommandError('Invalid datetime: ""')
    if text == "now":
        return now
    if text.startswith("+"):
        try:
            return now + fsd.parse(text[1:])
        except ValueError:
            raise CommandError(f'Invalid datetime: "{text}"') from None
    match = re.fullmatch(r"in (\d+(?:\.\d+)?) (second|minute|hour|day)s?", text)
    if match:
        unit = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}[match.group(2)]
        return now + float(match.group(1)) * unit
    day = list(time.localtime(now))
    words = re.split(r"[ T]+", text, maxsplit=1)
    if words[0] in ("today", "tomorrow"):
        day[2] += words[0] == "tomorrow"
        words.pop(0)
    elif re.fullmatch(r"\d{4}-\d\d?-\d\d?", words[0]):
        day[:3] = map(int, words.pop(0).split("-"))
    elif re.fullmatch(r"\d\d?/\d\d?/\d{4}", words[0]):
        month, dom, year = map(int, words.pop(0).split("/"))
        day[:3] = year, month, dom
    if words and words[0]:
        names = {"noon": "12:00", "midnight": "0:00"}
        clock = words[0][3:] if words[0].startswith("at ") else words[0]
        clock = names.get(clock, clock)
        match = re.fullmatch(r"(\d\d?)(?::(\d\d))?(?::(\d\d))?\s*(am|pm)?Z?", clock, re.I)
        if not match or not (match.group(2) or match.group(4)):
            raise CommandError(f'Invalid datetime: "{text}"')
        hour = int(match.group(1))
        if match.group(4):
            hour = hour % 12 + (12 if match.group(4).lower() == "pm" else 0)
        day[3:6] = hour, int(match.group(2) or 0), int(match.group(3) or 0)
    day[8] = -1
    try:
        return float(time.mktime(tuple(day)))
    except (ValueError, OverflowError):
        raise CommandError(f'Invalid datetime: "{text}"') from None


def _matcher(pattern):
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            search = re.compile(pattern[1:-1]).search
        except re.error as exc:
            raise CommandError(f"--env: invalid regex '{pattern}': {exc}") from None
        return lambda name: search(name) is not None
    return lambda name: fnmatch.fnmatchcase(name, pattern)


def environment(rules, environ=None):
    """The job's environment: this one after the rules of ``--env``, in order.

    ``-PATTERN`` removes, ``PATTERN`` takes again, ``NAME=VALUE`` sets (``$X`` is expanded),
    ``^FILE`` reads rules from a file.
    """
    source = dict(os.environ if environ is None else environ)
    result = dict(source)
    queue = list(rules or ())
    while queue:
        rule = queue.pop(0)
        if rule.startswith("-"):
            match = _matcher(rule[1:])
            result = {k: v for k, v in result.items() if not match(k)}
        elif rule.startswith("^"):
            try:
                with open(os.path.expanduser(rule[1:]), encoding="utf-8") as file:
                    lines = [line.strip() for line in file]
            except OSError as exc:
                raise CommandError(f"--env: {rule[1:]}: {exc.strerror}") from None
            queue = [line for line in lines if line and not line.startswith("#")] + queue
        elif "=" in rule:
            name, _, value = rule.partition("=")
            try:
                result[name] = string.Template(value).substitute({**source, **result})
            except KeyError as exc:
                raise CommandError(f"--env: Variable {exc} not found in {rule}") from None
            except ValueError as exc:
                raise CommandError(f"--env: {rule}: {exc}") from None
        else:
            match = _matcher(rule)
            result.update((k, v) for k, v in source.items() if match(k))
    return result


def rlimits(rules):
    """The soft limits to give the job, by name, after the rules of ``--rlimit``."""
    import resource

    current = {}
    for name in RLIMITS:
        number = getattr(resource, "RLIMIT_" + name.upper(), None)
        if number is not None:
            current[name] = resource.getrlimit(number)[0]
    result = dict(current)
    given = [rule for text in rules or () for rule in text.split(",")]
    for rule in RLIMIT_DEFAULT + given:
        if rule.startswith("-"):
            match = _matcher(rule[1:].lower())
            result = {k: v for k, v in result.items() if not match(k)}
        elif "=" in rule:
            name, _, value = rule.partition("=")
            if name not in current:
                raise CommandError(f"--rlimit: No such resource limit: {name}")
            try:
                result[name] = -1 if value in ("unlimited", "inf") else int(value)
            except ValueError:
                raise CommandError(f"--rlimit: Invalid value in {name}={value}") from None
        else:
            match = _matcher(rule.lower())
            found = {k: v for k, v in current.items() if match(k)}
            if not found:
                raise CommandError(f"--rlimit: No match for {rule}")
            result.update(found)
    return result
