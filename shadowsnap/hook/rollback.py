"""`/rollback` answered by the prompt hook itself, without the model.

Some agents show the reason with which a hook stops a prompt to the person, word for word, and then ask no model.
A prompt is taken for ours only if all of it is a command of the grammar whose numbers and files exist:
"rollback the last commit" goes to the model untouched.
"""

from __future__ import annotations

import json

from shadowsnap.hook.payload import HookEvent, output_in
from shadowsnap.manager import CheckpointManager

# The event that may answer, and the word that stops the prompt there.
_ANSWERING = {
    "claude": ("userpromptexpansion", "block"),
    "codex": ("userpromptsubmit", "block"),
    "qwen": ("userpromptsubmit", "block"),
    "gemini": ("beforeagent", "deny"),
}
_LONGEST = 2000


def is_rollback(event: HookEvent) -> bool:
    """Whether a prompt may be meant for us; cheap, and true for every one that is."""
    words = event.prompt[:_LONGEST].split(None, 1)
    return bool(event.command) or (bool(words) and words[0].lower() in ("/rollback", "rollback"))


def answer(event: HookEvent) -> bytes | None:
    """What the hook prints; None if this prompt is the model's."""
    name, word = _ANSWERING.get(event.agent, ("", ""))
    if event.name == name and (output := output_in(event.prompt)):
        return _answer(word, output)  # the agent ran the command itself and would let the model repeat this
    if event.name != name or not is_rollback(event) or len(event.prompt) > _LONGEST:
        return None
    from shadowsnap.agents.slash import RollbackCommand

    manager = CheckpointManager.from_settings()
    command = RollbackCommand(manager, manager.find_project(event.cwd))
    line = event.command.removeprefix("rollback") if event.command else event.prompt
    # Where the agent itself knows the command, everything behind it is ours, also what is wrong with it.
    if not event.command and not command.is_command(line):
        return None
    return _answer(word, str(command.run(line)))


def _answer(word: str, text: str) -> bytes:
    return json.dumps({"decision": word, "reason": text}).encode("ascii") + b"\n"
