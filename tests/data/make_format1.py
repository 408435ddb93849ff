"""Makes `format1.tar.gz`: a store of format 1, written by the code of the last release that had it.

    git archive 8f198fa | tar x -C DIRECTORY
    PYTHONPATH=DIRECTORY python tests/data/make_format1.py tests/data/format1.tar.gz

The archive has the base directory (`base/`), the two projects (`shop/`, `docs/`), and `seen.json`: what that
release itself said of them. `tests/store/test_format1.py` unpacks it somewhere else, see there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from shadowsnap import CheckpointManager


class Story:
    def __init__(self, root: Path) -> None:
        self.base, self.shop, self.docs = root / "base", root / "shop", root / "docs"
        for folder in (self.shop, self.docs):
            folder.mkdir()
        self.seen: dict[str, Any] = {}
        self.manager = self._manager()

    def _manager(self, **settings: Any) -> CheckpointManager:
        return CheckpointManager(base=self.base, background_upkeep=False, fsync=False, **settings)

    def write(self, name: str, text: str) -> None:
        (self.shop / name).write_text(text)
        time.sleep(0.02)  # every state has a moment of its own

    def turn(self, prompt: str, session: str = "sess-a", *, said: Any = None, **files: str) -> None:
        self.manager.new_turn(session, prompt, said, agent="claude")
        self.manager.before_tool("Write", {"file_path": str(self.shop / "cart.py")}, self.shop)
        for name, text in files.items():
            self.write(name.replace("_py", ".py"), text)
        self.manager.end_turn([*(said or []), {"role": "assistant", "content": "done"}] if said else None)

    def tell(self) -> None:
        manager = self.manager
        self.write("cart.py", "def total(): pass\n")
        self.turn("write the cart", said=[{"role": "user", "content": "write the cart"}], cart_py="total = 1\n")
        self.write("notes.txt", "mine\n")  # the person's own edit
        self.turn("add tests", said=[{"role": "user", "content": "add tests"}], test_py="assert 1\n")
        self.turn("begins on a held state", cart_py="total = 2\n")
        self.turn("changes nothing on a held state")
        self.write("notes.txt", "mine, again\n")
        self.turn("changes nothing on a new state")
        self.write("notes.txt", "mine, for the release\n")
        manager.label(self.shop, manager.snapshot(self.shop, "before the release").checkpoint.id, "release")
        self.write("notes.txt", "mine, later\n")
        manager.pin(self.shop, manager.snapshot(self.shop, "kept for ever").checkpoint.id)
        self.turn("work of another", "sess-b", other_py="other = 1\n")
        manager.new_turn("sess-c", "never closed", agent="codex")
        manager.before_tool("Bash", {"command": "make"}, self.shop)
        self.write("built.txt", "built\n")
        self._tool_by_tool()
        self._stages()
        self._second_project()
        self._hooks()
        self._back_and_forth()
        manager.end_session("sess-b", "failed")
        said = [{"role": "user", "content": "from elsewhere"}]
        manager.attach(self.shop, "release", said, "imported-1", prompt="from elsewhere", agent="other")
        self._look()

    def _tool_by_tool(self) -> None:
        each = self._manager(granularity="tool")
        each.new_turn("sess-d", "tool by tool", agent="claude")
        for number in range(2):
            asked = {"file_path": str(self.shop / f"tool{number}.py")}
            each.before_tool("Write", asked, self.shop)
            self.write(f"tool{number}.py", f"tool = {number}\n")
            each.after_tool("Write", asked, self.shop)
            self.write("notes.txt", f"between the calls {number}\n")
        each.end_turn()

    def _stages(self) -> None:
        self.manager.snapshot(self.shop, "before the stages")  # a stage begins only on what is held
        with self.manager.stage(self.shop, edit_id="edit-1", session_id="sess-b", risk_tier="low") as stage:
            self.write("staged.py", "staged = 1\n")
            stage.commit("a stage that was kept")
        with self.manager.stage(self.shop, edit_id="edit-2", session_id="sess-b") as stage:
            self.write("staged.py", "staged = 2\n")
            stage.discard()

    def _second_project(self) -> None:
        (self.docs / "index.md").write_text("# docs\n")
        self.manager.new_turn("sess-a", "write it in both places", agent="claude")
        for folder in (self.shop, self.docs):
            self.manager.before_tool("Write", {"file_path": str(folder / "both.md")}, folder)
            (folder / "both.md").write_text("both\n")
        self.manager.end_turn()

    def _hooks(self) -> None:
        """A turn that the hooks of an agent closed, and one that is still open."""
        transcript = self.base / "claude.jsonl"
        said = {"type": "user", "message": {"role": "user", "content": "by a hook"}}
        transcript.write_text(json.dumps(said) + "\n")
        about = {"session_id": "hooked-1", "cwd": str(self.shop), "transcript_path": str(transcript)}
        self._hook({**about, "hook_event_name": "UserPromptSubmit", "prompt": "by a hook"})
        tool = {"tool_name": "Write", "tool_input": {"file_path": str(self.shop / "hook.py")}}
        self._hook({**about, "hook_event_name": "PreToolUse", **tool})
        self.write("hook.py", "hook = 1\n")
        self._hook({**about, "hook_event_name": "Stop"})
        transcript.unlink()

    def _hook(self, payload: dict[str, Any]) -> None:
        environment = {**os.environ, "SHADOWSNAP_HOME": str(self.base), "SHADOWSNAP_BACKGROUND_UPKEEP": "false"}
        command = [sys.executable, "-m", "shadowsnap", "hook", "claude"]
        subprocess.run(command, input=json.dumps(payload).encode(), env=environment, check=True, cwd=self.shop)

    def _back_and_forth(self) -> None:
        listed = self.manager.list_checkpoints(self.shop)
        self.manager.revert(self.shop, turn=2)
        self.manager.restore(self.shop, listed[4].id)
        self.seen["after_first_restore"] = self._files()
        self.manager.restore(self.shop, listed[-1].id, ["cart.py"])
        self.seen["after_second_restore"] = self._files()
        self.manager.restore(self.shop, listed[8].id)
        self.seen["after_third_restore"] = self._files()
        self.manager.undo(self.shop)
        self.seen["now"] = self._files()

    def _files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.shop.iterdir()) if path.is_file()}

    def _look(self) -> None:
        manager = self.manager
        for name, folder in (("shop", self.shop), ("docs", self.docs)):
            self.seen[name] = [each.to_dict() for each in manager.list_checkpoints(folder)]
        self.seen["sessions"] = [each.to_dict() for each in manager.sessions()]
        self.seen["conversations"] = {}
        for each in manager.list_checkpoints(self.shop):
            try:
                found = manager.restore(self.shop, each.id, conversation=True, files=False)
            except Exception:  # most checkpoints have none
                continue
            self.seen["conversations"][each.id] = found.conversation.data


def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        story = Story(root)
        story.tell()
        seen = {"root": str(root), **story.seen}
        (root / "seen.json").write_text(json.dumps(seen, indent=1, default=str))
        with tarfile.open(target, "w:gz") as archive:
            for name in ("base", "shop", "docs", "seen.json"):
                archive.add(root / name, name)


if __name__ == "__main__":
    main(sys.argv[1])
