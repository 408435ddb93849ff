"""Random changes by a person or an agent: files, directories, links, ignore rules, and the person's own git.

There are few names, so that things meet: a file comes back under rules that changed, a directory stands where a
link was. Each edit returns what it did in a few words, for the story that is printed with a problem.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

from soaking.manifest import STAGING, Settings, plain_environment

FOLDERS = ("", "", "src", "src/deep", "docs", "gen", "data", "build", "node_modules/x")
NAMES = (
    "app.py", "notes.txt", "data.csv", "old.py", "new.py", "tool.sh", "big.bin", "run.log", "cert.pem", ".env",
    "x.key", "example.env", "a name.txt", "two\nlines.txt", "früh.txt",
)  # fmt: skip
PATTERNS = (
    "*.csv", "notes.txt", "gen/", "data/", "/src/deep", "*.txt", "!notes.txt", "!build/", "docs/*", "!docs/app.py",
    "old.py", "new.*", "**/deep/app.py", ".gitignore", "!*.log", "big.bin", "*.py", "# nothing", "tool.sh",
)  # fmt: skip
SETTINGS: tuple[Settings, ...] = (
    {}, {}, {"max_file_size_mb": 0.01}, {"include_secrets": True}, {"excludes": ["*.csv"]},
    {"excludes": ["gen/", "notes.txt"]}, {"excludes": ["!build/", "docs/"], "include_secrets": True},
)  # fmt: skip


class Edits:
    """The edits of one directory. `top` is the top of the person's repository, if there is one."""

    def __init__(self, project: Path, top: Path) -> None:
        self.project = project
        self.top = top

    def some(self, chance: Random, most: int = 4) -> list[str]:
        return [self.one(chance) for _ in range(chance.randint(1, most))]

    def one(self, chance: Random) -> str:
        edit: Callable[[Edits, Random], str] = chance.choice(_EDITS)
        if chance.random() < 0.18:
            edit = chance.choice(_RULES)
        if (self.top / ".git").is_dir() and chance.random() < 0.15:
            edit = chance.choice(_GIT)
        try:
            return edit(self, chance)
        except (OSError, shutil.Error) as problem:  # a file stands where a directory was wanted, and so on
            return f"nothing ({type(problem).__name__})"

    def place(self, chance: Random) -> Path:
        """A path that may exist or not, and is reached without passing a link."""
        while True:
            path = self.project / chance.choice(FOLDERS) / chance.choice(NAMES)
            above = [folder for folder in path.parents if folder.is_relative_to(self.project)]
            if not any(folder.is_symlink() for folder in above):
                return path

    def existing(self, chance: Random) -> Path:
        """A file, also through a link to one; not in a `.git`."""
        found = sorted(Path(folder, name) for folder, _, names in os.walk(self.project) for name in names)
        found = [path for path in found if ".git" not in path.parts and STAGING not in str(path)]
        found = [path for path in found if path.is_file()]
        return chance.choice(found) if found else self.place(chance)

    def shown(self, path: Path) -> str:
        text = path.relative_to(self.top).as_posix()
        return repr(text) if text.isprintable() is False else text

    # --- files -------------------------------------------------------------------------------

    def write(self, chance: Random) -> str:
        path = self.place(chance)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or not (path.is_file() or not path.exists()):
            path.unlink()  # not through a link, and not into a FIFO
        path.write_bytes(_content(chance, path.name))
        return f"write {self.shown(path)}"

    def rewrite(self, chance: Random) -> str:
        """Other bytes of the same length, with the old modification time: only the change time shows it."""
        path = self.existing(chance)
        if path.is_symlink() or not path.is_file():
            return "nothing"
        seen, data = path.stat(), bytearray(path.read_bytes())
        if data:
            spot = chance.randrange(len(data))
            data[spot] = data[spot] ^ 1 if data[spot] not in b"\n\x0b" else data[spot]
        path.write_bytes(data)
        if chance.random() < 0.5:
            os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        return f"rewrite in the same size {self.shown(path)}"

    def change_a_line(self, chance: Random) -> str:
        path = self.existing(chance)
        if path.is_symlink() or not path.is_file():
            return "nothing"
        lines = path.read_bytes().split(b"\n")
        spot = chance.randrange(len(lines))
        lines[spot] = b"changed %d" % chance.randint(0, 99)
        path.write_bytes(b"\n".join(lines))
        return f"change line {spot} of {self.shown(path)}"

    def replace(self, chance: Random) -> str:
        """The way editors save: a new file takes the place of the old one."""
        path = self.existing(chance)
        new = path.with_name("replacement.tmp")
        new.write_bytes(_content(chance, path.name))
        new.replace(path)
        return f"replace {self.shown(path)}"

    def remove(self, chance: Random) -> str:
        path = self.existing(chance)
        path.unlink()
        return f"remove {self.shown(path)}"

    def move(self, chance: Random) -> str:
        old, new = self.existing(chance), self.place(chance)
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
        return f"move {self.shown(old)} to {self.shown(new)}"

    def chmod(self, chance: Random) -> str:
        path = self.existing(chance)
        bits = chance.choice([0o644, 0o600, 0o755, 0o640, 0o700])
        if not path.is_symlink():
            path.chmod(bits)
        return f"chmod {bits:o} {self.shown(path)}"

    def link(self, chance: Random) -> str:
        path = self.place(chance)
        while path.name in ("cert.pem", ".env", "x.key"):  # no promise says what a link with such a name is
            path = self.place(chance)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(chance.choice(["app.py", "src", "../docs", "nowhere", "notes.txt"]))
        return f"link {self.shown(path)}"

    def fifo(self, chance: Random) -> str:
        path = self.place(chance).with_name("pipe")
        os.mkfifo(path)
        return f"FIFO {self.shown(path)}"

    # --- directories -------------------------------------------------------------------------

    def make_folder(self, chance: Random) -> str:
        path = self.project / chance.choice(("empty", "src/empty", "gen/empty", "docs/a/b"))
        path.mkdir(parents=True)
        return f"make directory {self.shown(path)}"

    def chmod_folder(self, chance: Random) -> str:
        path = self.project / chance.choice(FOLDERS)
        bits = chance.choice([0o755, 0o700, 0o750])
        if path != self.project and path.is_dir() and not path.is_symlink():
            path.chmod(bits)
        return f"chmod {bits:o} {self.shown(path)}/"

    def remove_folder(self, chance: Random) -> str:
        path = self.project / chance.choice(FOLDERS)
        if path == self.project or path.is_symlink():
            return "nothing"
        shutil.rmtree(path)
        return f"remove directory {self.shown(path)}"

    def move_folder(self, chance: Random) -> str:
        old, new = (self.project / chance.choice(FOLDERS) for _ in range(2))
        if self.project in (old, new) or new.is_relative_to(old) or new.exists() or new.is_symlink():
            return "nothing"
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
        return f"move directory {self.shown(old)} to {self.shown(new)}"

    def swap_kind(self, chance: Random) -> str:
        """A file where a directory was, or the other way."""
        path = self.project / chance.choice(FOLDERS)
        if path == self.project:
            return "nothing"
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            path.write_text("a file now\n")
            return f"file in place of directory {self.shown(path)}"
        path.unlink()
        (path / "inside").mkdir(parents=True)
        (path / "inside" / "app.py").write_text("a directory now\n")
        return f"directory in place of file {self.shown(path)}"

    # --- ignore rules ------------------------------------------------------------------------

    def write_rules(self, chance: Random) -> str:
        path = self.project / chance.choice(FOLDERS) / ".gitignore"
        if self.top != self.project and chance.random() < 0.3:
            path = self.top / ".gitignore"
        if path.is_dir() or path.is_symlink() or any(above.is_symlink() for above in path.parents):
            return "nothing"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.is_file() and chance.random() < 0.5 else []
        lines += chance.sample(PATTERNS, chance.randint(1, 2))
        path.write_text("".join(f"{line}\n" for line in lines))
        return f"{self.shown(path)}: {' '.join(lines)}"

    def remove_rules(self, chance: Random) -> str:
        found = sorted(path for path in self.top.rglob(".gitignore") if path.is_file() or path.is_symlink())
        if not found:
            return "nothing"
        path = chance.choice(found)
        path.unlink()
        return f"remove {self.shown(path)}"

    def odd_rules(self, chance: Random) -> str:
        path = self.project / chance.choice(FOLDERS) / ".gitignore"
        if chance.random() < 0.5:
            path.symlink_to("app.py")
            return f"link {self.shown(path)}"
        path.mkdir()
        return f"make directory {self.shown(path)}"

    # --- the person's git --------------------------------------------------------------------

    def write_exclude(self, chance: Random) -> str:
        lines = chance.sample(PATTERNS, chance.randint(0, 2))
        (self.top / ".git/info").mkdir(exist_ok=True)
        (self.top / ".git/info/exclude").write_text("".join(f"{line}\n" for line in lines))
        return f".git/info/exclude: {' '.join(lines)}"

    def track(self, chance: Random) -> str:
        return self._git("add", "-f", "--", str(self.existing(chance)))

    def untrack(self, chance: Random) -> str:
        return self._git("rm", "-q", "--cached", "--", str(self.existing(chance)))

    def commit(self, chance: Random) -> str:
        return self._git("commit", "-q", "-a", "-m", "work", "--allow-empty")

    def checkout(self, chance: Random) -> str:
        self._git("branch", "other")
        return self._git("checkout", "-q", chance.choice(["other", "main"]))

    def add_all(self, chance: Random) -> str:
        return self._git("add", "-A")

    def _git(self, *arguments: str) -> str:
        subprocess.run(
            ["git", *arguments], cwd=self.top, env=plain_environment(), stdin=subprocess.DEVNULL,
            capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        return f"git {' '.join(arguments)}".replace(f"{self.top}/", "")

    def begin(self, chance: Random, repository: bool, nested: bool) -> None:
        """The files that a story begins with."""
        self.project.mkdir(parents=True)
        for name in ("app.py", "notes.txt", "src/app.py", "src/old.py", "docs/notes.txt", "gen/data.csv"):
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_content(chance, path.name))
        if repository:
            self._git("init", "-q", "-b", "main")
            self._git("add", "-A")
            self._git("commit", "-q", "-m", "first")
        if nested:
            library = self.project / "vendor" / "lib"
            library.mkdir(parents=True)
            (library / "app.py").write_text("a repository inside\n")
            Edits(library, library)._git("init", "-q", "-b", "main")
            Edits(library, library)._git("add", "-A")


def _content(chance: Random, name: str) -> bytes:
    """From a small set, which all stories share: what one drops another needs. Lines, so that merges happen."""
    if name == "big.bin":
        return Random(chance.randint(0, 9)).randbytes(chance.choice([5000, 30000]))
    kind = chance.randint(0, 9)
    if kind == 0:
        return b""
    if kind == 1:
        return b"windows\r\n$Id$\r\n" * 3
    return b"".join(b"line %d of %d\n" % (line, kind) for line in range(12)) + b"%d\n" % chance.randint(0, 9)


_EDITS = (
    *(Edits.write,) * 6, *(Edits.rewrite,) * 3, *(Edits.change_a_line,) * 4, *(Edits.replace,) * 2,
    *(Edits.remove,) * 3, *(Edits.move,) * 3, Edits.chmod, Edits.chmod, Edits.link, Edits.fifo, Edits.make_folder,
    Edits.chmod_folder, Edits.remove_folder, Edits.move_folder, Edits.swap_kind,
)  # fmt: skip
_RULES = (*(Edits.write_rules,) * 8, *(Edits.remove_rules,) * 4, Edits.odd_rules)
_GIT = (Edits.write_exclude, Edits.write_exclude, Edits.track, Edits.track, Edits.untrack, Edits.commit,
        Edits.checkout, Edits.add_all)  # fmt: skip
