"""Settings: defaults, one TOML file and a few environment variables, read once.

The only reader of the environment and of the configuration file. Every complaint
names the file, the key, the value and what is allowed. `places` needs no file at
all, so that the client can find the socket in a moment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fabled.errors import AccessDenied, ConfigError, SocketPathTooLong
from fabled.protocol import SOCKET_PATH_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Places(NamedTuple):
    """Where things are: the Map's home, the configuration file and the socket."""

    home: Path
    config: Path
    socket: Path


class Key(NamedTuple):
    """One setting: its default, what is allowed (in words) and the test for it."""

    default: object
    allowed: str
    valid: Callable[[object], bool]


class PruneSettings(NamedTuple):
    """What `[prune]` says for one project: seconds, bytes and fractions."""

    enabled: bool
    level: str
    quiet: float
    min_bytes: int
    min_gain: float
    keep_prompts: int


class Settings(NamedTuple):
    """Every effective setting with its source.

    Attributes:
        projects: Roots to watch; a missing one is waited for.
        values: Dotted key -> value, for every key of `KEYS` but `projects`.
        sources: Dotted key -> "default", "file" or the variable that set it.
    """

    places: Places
    projects: tuple[Path, ...]
    values: Mapping[str, Any]
    sources: Mapping[str, str]

    def override(self, key: str, value: object, source: str) -> Settings:
        """The same settings but for one that the command line gives."""
        return self._replace(
            values={**self.values, key: value}, sources={**self.sources, key: source}
        )

    def prune(self, *names: str | None) -> PruneSettings:
        """The settings of `[prune]` for a project, known by any of these names."""
        values = {name: self.values[f"prune.{name}"] for name in _PRUNE}
        for name in names:
            values.update(self.values["prune.projects"].get(name, {}) if name else {})
        return PruneSettings(**values)

    def seconds(self, key: str) -> float:
        """The value of a key measured in seconds."""
        return float(self.values[key])

    def text(self, key: str) -> str:
        """The value of a key that is one of a few words."""
        return str(self.values[key])

    def flag(self, key: str) -> bool:
        """The value of a key that is true or false."""
        return bool(self.values[key])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _at_least(least: float) -> Callable[[object], bool]:
    def valid(value: object) -> bool:
        return _is_number(value) and least <= value < float("inf")  # type: ignore[operator]

    return valid


def _whole(least: int) -> Callable[[object], bool]:
    def valid(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return valid


def _fraction(value: object) -> bool:
    return _is_number(value) and 0 <= value <= 1  # type: ignore[operator]


def _one_of(*words: str) -> Callable[[object], bool]:
    def valid(value: object) -> bool:
        return isinstance(value, str) and value in words

    return valid


def _boolean(value: object) -> bool:
    return isinstance(value, bool)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)


_FLAG = "true or false"
_SECONDS = "a number of seconds, 0 or more"
_BYTES = "a whole number of bytes, 0 or more"

_PRUNE: Mapping[str, Key] = {
    "enabled": Key(True, _FLAG, _boolean),
    "level": Key("transparent", "transparent or lean", _one_of("transparent", "lean")),
    "quiet": Key(1800, _SECONDS, _at_least(0)),
    "min_bytes": Key(1048576, _BYTES, _whole(0)),
    "min_gain": Key(0.2, "a fraction from 0 to 1", _fraction),
    "keep_prompts": Key(3, "a whole number, 0 or more", _whole(0)),
}


def _overrides(value: object) -> bool:
    """Tables named by project, of the same keys as the section itself."""
    return isinstance(value, dict) and all(
        isinstance(table, dict)
        and all(key in _PRUNE and _PRUNE[key].valid(one) for key, one in table.items())
        for table in value.values()
    )


KEYS: Mapping[str, Key] = {
    "archive.enabled": Key(True, _FLAG, _boolean),
    "archive.quiet": Key(600, _SECONDS, _at_least(0)),
    **{f"prune.{name}": key for name, key in _PRUNE.items()},
    "prune.projects": Key(
        {},
        'tables such as [prune.projects."/home/me/work"] with the keys of [prune]',
        _overrides,
    ),
    "vault.compression": Key("zstd", "zstd or none", _one_of("zstd", "none")),
    "vault.max_bytes": Key(0, _BYTES + " (0 = no cap)", _whole(0)),
    "index.redact": Key(True, _FLAG, _boolean),
    "index.trigram": Key(False, _FLAG, _boolean),
    "index.reconcile": Key(60, "a number of seconds, 1 or more", _at_least(1)),
    "cards.provider": Key(
        "extractive",
        "extractive, command or openai",
        _one_of("extractive", "command", "openai"),
    ),
    "cards.command": Key(
        [], 'a program and its arguments, such as ["llm", "-m", "gpt-5-mini"]', _strings
    ),
    "cards.url": Key("", "the base URL of an OpenAI-compatible endpoint", _text),
    "cards.model": Key("", "a model's name", _text),
    "cards.key_env": Key("OPENAI_API_KEY", "the name of an environment variable", _text),
    "cards.timeout": Key(180, _SECONDS, _at_least(1)),
    "cards.attempts": Key(3, "a whole number, 1 or more", _whole(1)),
    "cards.per_minute": Key(10, "a whole number, 1 or more", _whole(1)),
    "cards.daily_tokens": Key(200000, "a whole number, 0 or more (0 = none by itself)", _whole(0)),
    "cards.prompt_tokens": Key(6000, "a whole number, 500 or more", _whole(500)),
    "log.level": Key(
        "info",
        "debug, info, warning or error",
        _one_of("debug", "info", "warning", "error"),
    ),
}
_PROJECTS_ALLOWED = "a list of folders, each an absolute path or one that begins with ~"


def environment() -> Mapping[str, str]:
    """The process's environment, for those who may not read it themselves."""
    return os.environ


def places(environ: Mapping[str, str], config: Path | None = None) -> Places:
    """Find home, configuration file and socket without reading any file.

    Args:
        environ: The process's environment.
        config: A file named on the command line; wins over `FABLED_CONFIG`.

    Raises:
        SocketPathTooLong: The platform cannot bind a path of that length.
    """
    named_home = environ.get("FABLED_HOME")
    home = _absolute(named_home, environ) if named_home else _user_dir("data", environ)
    if config is None:
        named = environ.get("FABLED_CONFIG")
        config = (
            _absolute(named, environ) if named else _user_dir("config", environ) / "config.toml"
        )
    named_socket = environ.get("FABLED_SOCKET")
    runtime = environ.get("XDG_RUNTIME_DIR")
    if named_socket:
        socket = _absolute(named_socket, environ)
    elif runtime and not named_home:
        socket = Path(runtime) / "fabled" / "fabled.sock"
    else:
        socket = home / "run" / "fabled.sock"
    _check_socket(socket)
    return Places(home, config, socket)


def _check_socket(socket: Path) -> None:
    limit = SOCKET_PATH_LIMITS.get(sys.platform, min(SOCKET_PATH_LIMITS.values()))
    length = len(os.fsencode(socket))
    if length > limit:
        raise SocketPathTooLong(
            f"the socket path {socket} is {length} bytes long; this platform allows {limit}"
        )


def _absolute(text: str, environ: Mapping[str, str]) -> Path:
    path = Path(text)
    if path.parts[:1] == ("~",):
        path = Path(environ.get("HOME") or Path.home()).joinpath(*path.parts[1:])
    return Path.cwd() / path


def _user_dir(kind: str, environ: Mapping[str, str]) -> Path:
    if sys.platform == "linux":
        # platformdirs would say the same; importing it costs the client more than its request.
        name, default = {
            "data": ("XDG_DATA_HOME", ".local/share"),
            "config": ("XDG_CONFIG_HOME", ".config"),
        }[kind]
        base = environ.get(name, "")
        if not base.startswith("/"):  # the specification says to ignore relative ones
            return Path(environ.get("HOME") or Path.home()) / default / "fabled"
        return Path(base) / "fabled"
    import platformdirs  # noqa: PLC0415 - not on Linux's hot path

    found = platformdirs.user_data_path if kind == "data" else platformdirs.user_config_path
    return found("fabled", appauthor=False)


def load(environ: Mapping[str, str], config: Path | None = None) -> Settings:
    """Read the configuration file, if there is one, over the defaults.

    Args:
        environ: The process's environment.
        config: A file named on the command line; it must exist.

    Raises:
        ConfigError: A key, type or value is not allowed; the message names all three.
        AccessDenied: The file exists and cannot be read.
        SocketPathTooLong: See `places`.
    """
    where = places(environ, config)
    required = config is not None or bool(environ.get("FABLED_CONFIG"))
    table = _read(where.config, required=required)
    values: dict[str, Any] = {key: spec.default for key, spec in KEYS.items()}
    sources = dict.fromkeys(["projects", *KEYS], "default")
    projects = _default_projects(environ)
    for key, value in _flatten(table, where.config):
        if key == "projects":
            projects = _projects(value, where.config, environ)
        else:
            values[key] = _checked(key, value, where.config)
        sources[key] = "file"
    if environ.get("FABLED_PROJECTS"):
        parts = environ["FABLED_PROJECTS"].split(os.pathsep)
        projects = tuple(_absolute(part, environ) for part in parts if part)
        sources["projects"] = "FABLED_PROJECTS"
    _check_cards(values, where.config)
    return Settings(where, projects, values, sources)


_NEEDED = {"command": ("command",), "openai": ("url", "model"), "extractive": ()}
"""What else `[cards]` has to say for a provider."""


def _check_cards(values: Mapping[str, Any], path: Path) -> None:
    provider = values["cards.provider"]
    for name in _NEEDED[provider]:
        if not values[f"cards.{name}"]:
            raise ConfigError(
                f"{path}: cards.provider = {provider!r} needs cards.{name}:"
                f" {KEYS[f'cards.{name}'].allowed}"
            )


def _default_projects(environ: Mapping[str, str]) -> tuple[Path, ...]:
    base = environ.get("CLAUDE_CONFIG_DIR")
    root = _absolute(base, environ) if base else _absolute("~/.claude", environ)
    return (root / "projects",)


def _read(path: Path, *, required: bool) -> Mapping[str, object]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if required:
            raise ConfigError(f"the configuration file {path} does not exist") from None
        return {}
    except OSError as fault:
        raise AccessDenied(f"cannot read the configuration {path}: {fault.strerror}") from fault
    import tomllib  # noqa: PLC0415 - most users have no file, and the client reads none

    try:
        return tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise ConfigError(f"{path} is not valid TOML: {fault}") from fault


def _flatten(table: Mapping[str, object], path: Path) -> list[tuple[str, object]]:
    sections = {key.partition(".")[0] for key in KEYS}
    flat: list[tuple[str, object]] = []
    for name, value in table.items():
        if name in sections and isinstance(value, dict):
            flat += [(f"{name}.{key}", inner) for key, inner in value.items()]
        elif name in sections:
            raise ConfigError(f"{path}: {name} = {value!r}: allowed is a section, [{name}]")
        else:
            flat.append((name, value))
    return flat


def _checked(key: str, value: object, path: Path) -> object:
    spec = KEYS.get(key)
    if spec is None:
        known = ", ".join(sorted(["projects", *KEYS]))
        raise ConfigError(f"{path}: unknown key {key} = {value!r}; known keys: {known}")
    if not spec.valid(value):
        raise ConfigError(f"{path}: {key} = {value!r}: allowed is {spec.allowed}")
    return value


def _projects(value: object, path: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    entries = value if isinstance(value, list) else []
    good = entries and all(isinstance(e, str) and e[:1] in ("/", "~") for e in entries)
    if not good:
        raise ConfigError(f"{path}: projects = {value!r}: allowed is {_PROJECTS_ALLOWED}")
    return tuple(dict.fromkeys(_absolute(entry, environ) for entry in entries))
