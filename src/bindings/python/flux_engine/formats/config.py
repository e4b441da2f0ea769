# SPDX-License-Identifier: LGPL-3.0-or-later
"""Configuration of an instance: TOML and JSON files and ``KEY=VALUE`` settings, merged in order.

The result is a plain dict that JSON can express; tables merge key by key, anything else is
replaced by the later value.
"""

import json
import os
import re
from datetime import datetime

try:
    import tomllib  # novm
except ImportError:  # Python before 3.11
    import tomli as tomllib

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


class ConfigError(ValueError):
    """A configuration that cannot be used; the text names the file or setting."""


def merge(base, extra):
    """Return `base` with `extra` laid over it; neither is changed."""
    result = dict(base)
    for key, value in extra.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result


def parse_toml(text, source):
    """Parse TOML `text`; `source` names it in errors.

    A date with a time of day is converted as by a real broker: ``{"iso-8601-ts": TEXT}``, the time
    as written, taken as UTC. Raises ConfigError, also for a date or a time alone.
    """
    try:
        config = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise ConfigError(f"{source}: TOML parse error: {exc}") from None
    _check_arrays(config, source)
    return check(_timestamps(config), source)


def parse_json(text, source):
    """Parse an object in JSON `text`; `source` names it in errors. Raises ConfigError."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{source}: JSON parse error: {exc}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{source}: JSON must be an object")
    return check(config, source)


def _timestamps(value):
    if isinstance(value, dict):
        return {key: _timestamps(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_timestamps(one) for one in value]
    if isinstance(value, datetime) and value.year >= 1970:
        return {"iso-8601-ts": value.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return value


def _check_arrays(value, source):
    """Refuse arrays of mixed types with ConfigError, as the TOML parser of a real Flux does."""
    if isinstance(value, dict):
        value = list(value.values())
    elif isinstance(value, list) and len({type(item) for item in value}) > 1:
        raise ConfigError(f"{source}: array type mismatch while processing array of values")
    for item in value if isinstance(value, list) else ():
        _check_arrays(item, source)


def check(config, source, key=""):
    """Return `config` if JSON can express it, else raise ConfigError, which names the key."""
    try:
        json.dumps(config, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        for name, value in config.items() if isinstance(config, dict) else ():
            check(value, source, f"{key}.{name}" if key else name)
        raise ConfigError(
            f"{source}: {key and key + ': '}only strings, numbers, booleans, arrays and tables can be used: {exc}"
        ) from None
    return config


def load_path(path):
    """Read configuration from a file, TOML or ``*.json``, or from all ``*.toml`` of a directory in name order. Raises ConfigError."""
    if os.path.isdir(path):
        config = {}
        for name in sorted(os.listdir(path)):
            if name.endswith(".toml"):
                config = merge(config, load_path(os.path.join(path, name)))
        return config
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    return (parse_json if path.endswith(".json") else parse_toml)(text, path)


def parse_setting(text):
    """Parse one ``--conf`` argument: the path of a file, or ``KEY=VALUE`` with VALUE in JSON or TOML, else a string."""
    key, eq, value = text.partition("=")
    if not eq:
        return load_path(text)
    parts = key.split(".")
    for part in parts:
        if not _BARE_KEY.match(part):
            raise ConfigError(
                f"{text}: expected KEY=VALUE with a dotted KEY, or the path of a TOML file"
            )
    try:
        if value.startswith("{"):
            parsed = {"x": json.loads(value)}
        else:
            parsed = tomllib.loads(f"x = {value}")
        parsed = check(parsed["x"], key) if list(parsed) == ["x"] else value
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError):
        parsed = value
    for part in reversed(parts):
        parsed = {part: parsed}
    return parsed
