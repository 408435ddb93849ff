"""What is not captured by default, in .gitignore syntax.

Dependencies, build output, caches and the like can be made again and would drown the rest.
Files that the person's git tracks are captured all the same, and a `.gitignore` may take a
pattern back (`!build/`).
"""

from __future__ import annotations

from collections.abc import Iterable

VERSION = 1
"""Goes up when the patterns change: a checkpoint remembers under which it was taken."""

DEFAULT_EXCLUDES: tuple[str, ...] = (
    # version control
    ".git/", ".hg/", ".svn/", ".bzr/", "_darcs/", ".jj/", "CVS/",
    # dependencies
    "node_modules/", "bower_components/", "jspm_packages/", ".pnpm-store/", ".yarn/cache/", ".yarn/unplugged/",
    # virtual environments
    ".venv/", "venv/", "env/", ".virtualenv/", "virtualenv/", ".tox/", ".nox/", ".conda/",
    # build output
    "build/", "dist/", "target/", "out/", "_build/", ".next/", ".nuxt/", ".svelte-kit/", ".output/", ".gradle/",
    "bazel-*/", "cmake-build-*/", "CMakeFiles/", "*.egg-info/", ".eggs/", "DerivedData/", ".dart_tool/",
    # caches
    "__pycache__/", ".cache/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/", ".parcel-cache/",
    ".turbo/", ".sass-cache/", ".npm/", ".ipynb_checkpoints/", ".nyc_output/", "htmlcov/", ".coverage",
    ".coverage.*", ".terraform/", ".vagrant/", ".direnv/",
    # compiled files
    "*.pyc", "*.pyo", "*.o", "*.obj", "*.a", "*.lib", "*.so", "*.so.*", "*.dylib", "*.dll", "*.exe", "*.class",
    "*.wasm", "*.pdb", "*.ko",
    # archives
    "*.zip", "*.tar", "*.tar.*", "*.tgz", "*.gz", "*.bz2", "*.xz", "*.zst", "*.7z", "*.rar", "*.jar", "*.war",
    "*.whl", "*.deb", "*.rpm", "*.iso", "*.dmg",
    # media
    "*.mp4", "*.mov", "*.avi", "*.mkv", "*.webm", "*.mp3", "*.wav", "*.flac", "*.ogg", "*.m4a", "*.psd",
    # logs and what editors and systems leave
    "*.log", "*.swp", "*.swo", "*~", ".DS_Store", "Thumbs.db", "desktop.ini",
    # our own work in progress
    ".shadowsnap-restore-*/",
)  # fmt: skip


def exclude_file(own: Iterable[str] = ()) -> bytes:
    """The excludes of a project: the defaults, and its own, which may take a default back."""
    about = f"# shadowsnap default excludes, version {VERSION}, and the project's own; this file is rewritten"
    lines = [about, *DEFAULT_EXCLUDES, *own]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def default_directory_names() -> frozenset[str]:
    """The excluded directories that are named without a wildcard or a path."""
    names = (pattern[:-1] for pattern in DEFAULT_EXCLUDES if pattern.endswith("/"))
    return frozenset(name for name in names if not set("*?[/") & set(name))
