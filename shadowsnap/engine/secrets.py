"""Files that are secrets by name: they are not captured, and listed as skipped."""

from __future__ import annotations

SECRET_NAMES = (
    ".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", ".netrc", "_netrc", ".pgpass",
    ".pypirc", ".git-credentials", ".htpasswd",
)  # fmt: skip
NOT_SECRET_ENDINGS = (".example", ".sample", ".template", ".dist", ".defaults", ".tpl", ".md")
_EXACT = frozenset(name.encode() for name in SECRET_NAMES if "*" not in name)
_BEGINNINGS = tuple(name[:-1].encode() for name in SECRET_NAMES if name.endswith("*"))
_ENDINGS = tuple(name[1:].encode() for name in SECRET_NAMES if name.startswith("*"))
_NOT_ENDINGS = tuple(ending.encode() for ending in NOT_SECRET_ENDINGS)


def is_secret(path: bytes) -> bool:
    name = path[path.rfind(b"/") + 1 :].lower()
    if name not in _EXACT and not name.startswith(_BEGINNINGS) and not name.endswith(_ENDINGS):
        return False
    return not name.endswith(_NOT_ENDINGS) and name != b"example.env"
