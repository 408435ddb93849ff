"""Two machines and a remote between them: each machine has a base and a directory of its own."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shadowsnap import CheckpointManager
from shadowsnap.store import lanes


@dataclass
class MachineUnderTest:
    """A machine: its store, its project, and what it calls itself."""

    name: str
    base: Path
    project: Path
    monkeypatch: pytest.MonkeyPatch
    manager: CheckpointManager

    @classmethod
    def make(
        cls, name: str, top: Path, monkeypatch: pytest.MonkeyPatch, project: Path | None = None
    ) -> MachineUnderTest:
        base = top / name / "base"
        project = project or top / name / "project"
        project.mkdir(parents=True, exist_ok=True)
        manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        return cls(name, base, project, monkeypatch, manager)

    def here(self) -> CheckpointManager:
        """The manager, on a machine of this name."""
        self.monkeypatch.setattr(platform, "node", lambda: self.name)
        return self.manager

    def turn(self, prompt: str, session: str = "s1", **files: str | None) -> None:
        """A turn of an agent that writes these files (`a__b` is `a.b`); None removes one."""
        manager = self.here()
        manager.new_turn(session_id=session, prompt=prompt, agent="test")
        manager.ensure_checkpoint(self.project, f"before {prompt}")
        for name, text in files.items():
            path = self.project / name.replace("__", ".")
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        outcomes = manager.end_turn()
        assert [each.status for each in outcomes] in (["taken"], ["unchanged"]), outcomes

    def push(self) -> Any:
        return self.here().push(self.project)

    def pull(self, *wanted: str, key: Path | None = None) -> Any:
        return self.here().pull(self.project, wanted, key)

    def own_lane(self) -> lanes.OwnLane:
        found = lanes.read_own_lane(self.store, self.project_id)
        assert found is not None
        return found

    @property
    def store(self) -> Any:
        from shadowsnap.store.layout import Store

        return Store(self.base, False)

    @property
    def project_id(self) -> str:
        from shadowsnap.store.projects import project_of

        return project_of(self.project).id
