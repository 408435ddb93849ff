"""Taking secrets out of conversations before they are kept.

What is looked for: tokens of known shapes, private keys, passwords in addresses, values that look
random in fields that are named like keys, and the person's own patterns. Files in checkpoints
never come through here: they stay exact.

Every rule begins at a literal. Finding a few literals in 20 MB takes milliseconds; a regular
expression that has to be tried at each letter takes a second.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

_LEAST_ENTROPY, _PASSWORD_ENTROPY = 3.0, 2.0
_KEY_VALUE = 12
"""Shorter values are not taken for keys, unless the field is one for passwords."""
_PASSWORD = 6
_LONGEST = 20_000
"""No secret is longer."""


class _Rule:
    """A name, the literals that it may begin with, and what must follow. The group `secret`, or all
    of it, is what goes."""

    def __init__(self, name: str, literals: str, pattern: str, *, word: bool = True) -> None:
        self.name = name
        self.literals = [literal.encode() for literal in literals.split()]
        self.pattern = re.compile(pattern.encode())
        self.word = word
        """Whether it begins a word: `sk-` in `task-` does not count."""


_RULES = (
    _Rule("private-key", "-----BEGIN", r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
          r"(?:[^\"']{0,20000}?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|"
          r"(?:[A-Za-z0-9+/=\r\n]|\\{1,4}[nr])*)", word=False),
    _Rule("aws-key", "AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _Rule("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,255}"),
    _Rule("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,255}"),
    _Rule("gitlab-token", "glpat- gldt- glrt-", r"gl(?:pat|dt|rt)-[A-Za-z0-9_.-]{20,}"),
    _Rule("slack-token", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-",
          r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    _Rule("slack-hook", "hooks.slack.com/",
          r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{20,})", word=False),
    _Rule("api-key", "sk-", r"sk-[A-Za-z0-9_-]{20,}"),
    _Rule("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
          r"(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9+/=]{16,}"),
    _Rule("google-key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
    _Rule("google-token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,}"),
    _Rule("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _Rule("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,}"),
    _Rule("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _Rule("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _Rule("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _Rule("bearer-token", "Bearer bearer", r"[Bb]earer (?P<secret>[A-Za-z0-9_.~+/-]{20,}=*)"),
    _Rule("web-token", "eyJ", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    _Rule("password", "://", r"://[^/\s:@\"'\\]{0,100}:(?P<secret>[^/\s@\"'\\]{3,200})@", word=False),
)  # fmt: skip

# In small letters; found in names such as AWS_SECRET_ACCESS_KEY, apiKey or "x-auth-token".
_FIELDS = (
    b"api_key", b"api-key", b"apikey", b"access_key", b"access-key", b"accesskey", b"account_key", b"accountkey",
    b"private_key", b"privatekey", b"signing_key", b"encryption_key", b"secret", b"token", b"passw", b"pwd",
    b"passphrase", b"credential", b"authorization",
)  # fmt: skip
_PASSWORDS = (b"passw", b"pwd", b"passphrase")
_VALUE = re.compile(
    # The rest of the name, its closing quote (escaped, if this is JSON in JSON), a sign, and the value.
    rb"(?!izer)[A-Za-z0-9_.-]{0,40}\\{0,3}[\"']?\s{0,4}(?:=>|[:=])\s{0,4}\\{0,3}[\"']?(?:(?:Bearer|Basic|Token) )?"
    rb"(?P<secret>[^\s\"'\\,;&<>(){}\[\]]{6,4096})",
    re.IGNORECASE,
)
_DIGIT, _LETTER = re.compile(rb"\d"), re.compile(rb"[A-Za-z]")
_NUMBER = re.compile(rb"[-+]?[\d.]+(?:[eE][-+]?\d+)?")
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

Spot = tuple[int, int, str]
"""From, to, and what was there."""


def redact(data: bytes, own: Iterable[str] = ()) -> tuple[bytes, int]:
    """The data with `[redacted: NAME]` in place of every secret, and how many there were. What
    was JSON remains JSON."""
    spots = [*_known(data), *_named_like_keys(data), *_matching(data, own)]
    if not spots:
        return data, 0
    parts, at, count = [], 0, 0
    for start, end, name in sorted(spots):
        if end <= at:
            continue  # inside of another one
        if start >= at:
            parts += [data[at:start], f"[redacted: {name}]".encode()]
            count += 1
        at = end
    return b"".join([*parts, data[at:]]), count


def redacted_text(text: str, own: Iterable[str] = ()) -> str:
    return redact(text.encode("utf-8", "surrogatepass"), own)[0].decode("utf-8", "surrogatepass")


def redacted_beginning(text: str, length: int, own: Iterable[str] = ()) -> str:
    """The first letters of a text. It is cut after the secrets are gone: half a token looks like none."""
    return redacted_text(text[: length + _LONGEST], own)[:length]


def _known(data: bytes) -> Iterator[Spot]:
    for rule in _RULES:
        for literal in rule.literals:
            for at in _occurrences(data, literal):
                if rule.word and at and data[at - 1] in _WORD and not _is_escape(data, at):
                    continue
                found = rule.pattern.match(data, at)
                if found:
                    start, end = found.span("secret" if "secret" in rule.pattern.groupindex else 0)
                    yield start, end, rule.name


def _named_like_keys(data: bytes) -> Iterator[Spot]:
    small = data.lower()
    for field in _FIELDS:
        for at in _occurrences(small, field):
            found = _VALUE.match(data, at + len(field))
            if found and not _is_code(data, found) and _looks_secret(found["secret"], field in _PASSWORDS):
                yield *found.span("secret"), "value"


def _matching(data: bytes, own: Iterable[str]) -> Iterator[Spot]:
    for text in own:
        for found in own_pattern(text).finditer(data):
            if found.end() > found.start():
                yield found.start(), found.end(), "own"


def own_pattern(text: str) -> re.Pattern[bytes]:
    """A person's pattern. One that is no regular expression means itself: to leave it out would
    keep what they wanted gone."""
    wanted = text.encode("utf-8", "surrogatepass")
    try:
        return re.compile(wanted)
    except re.error:
        return re.compile(re.escape(wanted))


def _occurrences(data: bytes, literal: bytes) -> Iterator[int]:
    at = data.find(literal)
    while at >= 0:
        yield at
        at = data.find(literal, at + len(literal))


def _is_escape(data: bytes, at: int) -> bool:
    r"""Whether the letter before is that of `\n` or `\t` in JSON."""
    return at > 1 and data[at - 1] in b"nrt" and data[at - 2] == ord("\\")


def _is_code(data: bytes, found: re.Match[bytes]) -> bool:
    """Whether something is called, or a plain word stands there without quotes: `password: string`."""
    value, before, after = found["secret"], found.start("secret") - 1, found.end()
    quoted = data[before : before + 1] in (b'"', b"'")
    return data[after : after + 1] in (b"(", b"[") or (not quoted and value.isalpha())


def _looks_secret(value: bytes, is_password: bool) -> bool:
    if _NUMBER.fullmatch(value) or value.startswith(b"$"):  # a count of tokens, a variable
        return False
    if is_password:
        return len(value) >= _PASSWORD and _entropy(value) >= _PASSWORD_ENTROPY
    mixed = _DIGIT.search(value) and _LETTER.search(value)  # few plain words and names have both
    return bool(mixed) and len(value) >= _KEY_VALUE and _entropy(value) >= _LEAST_ENTROPY


def _entropy(value: bytes) -> float:
    """Bits per letter."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in map(value.count, set(value)))
