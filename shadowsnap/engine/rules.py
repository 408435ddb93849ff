"""What is left out: patterns of this project beside the defaults, and secrets by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import translate
from pathlib import Path

from shadowsnap.config import Settings
from shadowsnap.engine.person import PersonRepository, read_patterns

SECRET_NAMES = (
    ".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", ".netrc", "_netrc", ".pgpass",
    ".pypirc", ".git-credentials", ".htpasswd",
)  # fmt: skip
NOT_SECRET_ENDINGS = (".example", ".sample", ".template", ".dist", ".defaults", ".tpl", ".md")
_EXACT = frozenset(name.encode() for name in SECRET_NAMES if "*" not in name)
_BEGINNINGS = tuple(name[:-1].encode() for name in SECRET_NAMES if name.endswith("*"))
_ENDINGS = tuple(name[1:].encode() for name in SECRET_NAMES if name.startswith("*"))
_LAST_LETTERS = frozenset(name[-3:].encode() for name in SECRET_NAMES if not name.endswith("*"))
_NOT_ENDINGS = tuple(ending.encode() for ending in NOT_SECRET_ENDINGS)


def is_secret(path: bytes) -> bool:
    name = path[path.rfind(b"/") + 1 :].lower()
    if name not in _EXACT and not name.startswith(_BEGINNINGS) and not name.endswith(_ENDINGS):
        return False
    return not name.endswith(_NOT_ENDINGS) and name != b"example.env"


def secrets_among(paths: Iterable[bytes]) -> list[bytes]:
    """Those that are secrets by name. Of many paths, most are passed by after a look at their end."""
    paths = list(paths)
    together = b"\n".join(paths).lower()
    if any(beginning in together for beginning in _BEGINNINGS):
        return list(filter(is_secret, paths))
    return [path for path in paths if path[-3:].lower() in _LAST_LETTERS and is_secret(path)]


def project_patterns(
    workdir: Path, repository: PersonRepository | None, settings: Settings, base: Path
) -> list[str]:
    """The exclude patterns that hold for this project only, on top of the defaults."""
    patterns = list(settings.excludes)
    if repository is not None:
        patterns += repository.exclude_lines() if repository.top == workdir else []
        patterns += _inherited(workdir, repository)
    if base.is_relative_to(workdir):
        patterns.append("/" + _escaped(base.relative_to(workdir).as_posix()) + "/")
    return patterns


def _escaped(path: str) -> str:
    return re.sub(r"([\\*?\[\]!# ])", r"\\\1", path)


def _inherited(workdir: Path, repository: PersonRepository) -> list[str]:
    """Patterns of the .gitignore files above a project that is a subdirectory of a repository,
    outermost first, turned into patterns relative to the project."""
    inherited: list[str] = []
    ignored: dict[Path, bool] = {}
    folders = [folder for folder in reversed(workdir.parents) if folder.is_relative_to(repository.top)]
    for folder in folders:
        lines = repository.exclude_lines() if folder == repository.top else []
        inside = workdir.relative_to(folder).parts
        for line in lines + read_patterns(folder / ".gitignore"):
            negated, parts = line.startswith("!"), _parts(line)
            for depth in range(1, len(inside) + 1):
                if [] in _rests(parts, inside[:depth]):
                    ignored[folder.joinpath(*inside[:depth])] = not negated
            inherited += _moved_down(line, parts, inside)
    # If the project itself is ignored up there, their rules are not about it.
    return [] if any(ignored.values()) else inherited


def _parts(line: str) -> list[str]:
    """A pattern by directories; one that may match at any depth begins with "**"."""
    body = line.removeprefix("!")
    body = (body if body.endswith("\\ ") else body.rstrip(" ")).rstrip("/")
    return body.removeprefix("/").split("/") if "/" in body else ["**", body]


def _moved_down(line: str, parts: list[str], inside: tuple[str, ...]) -> list[str]:
    """One pattern as seen from a directory below."""
    if parts[0] == "**" and len(parts) == 2:
        return [line]
    negation, tail = "!" if line.startswith("!") else "", "/" if line.rstrip(" ").endswith("/") else ""
    return [f"{negation}/{'/'.join(rest)}{tail}" for rest in _rests(parts, inside) if rest]


def _rests(pattern: list[str], inside: tuple[str, ...]) -> Iterator[list[str]]:
    """What is left of a pattern's parts after they matched the way down to a directory; nothing
    is left if the pattern matches the directory itself."""
    if not inside:
        yield pattern
    elif pattern == ["**"]:
        yield []  # everything below, and so the directory too
    elif pattern and pattern[0] == "**":
        yield from _rests(pattern[1:], inside)
        yield from _rests(pattern, inside[1:])
    elif pattern and _fits(inside[0], pattern[0]):
        yield from _rests(pattern[1:], inside[1:])


def _fits(name: str, pattern: str) -> bool:
    plain = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], pattern)
    return re.match(translate(plain.replace("[^", "[!")), name) is not None
