"""The seven stories that are played with every agent.

Each plays in a project of its own, judges what came of it, and raises Failed. What a person would do between the
turns (editing, interrupting) is part of the story.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from judge import (
    Expected,
    difference,
    judge_conversation,
    judge_files,
    judge_one_session,
    judge_revert,
    judge_timeline,
)
from model import Answer
from stage import Chat, Failed, Stage, manifest
from terminal import TerminalChat


class NotThere(Exception):
    """The agent has nothing that the story could be about."""


def _chat(stage: Stage, project: Path) -> Chat:
    """A conversation with several turns in one process, where that can be had."""
    return TerminalChat(stage, project) if stage.program.talks_in_terminal else Chat(stage, project)


def _chat_again(stage: Stage, project: Path) -> Chat:
    """The last session of a project, after its end."""
    sessions = [str(turn["session_id"]) for turn in stage.turns(project)]
    arguments = stage.program.chat_again(stage.home, sessions[-1]) if sessions else None
    if arguments is None:
        return Chat(stage, project, resume=True)
    return TerminalChat(stage, project, arguments=arguments)


def two_turns(stage: Stage, project: Path) -> None:
    """The person edits between two turns of one conversation; both states come back."""
    program = stage.program
    write = stage.play(
        "write", Answer(calls=(program.write(project / "new.py", "x = 1\n"),)), Answer("It is new.")
    )
    remove = stage.play("remove", Answer(calls=(program.shell("rm -r src"),)), Answer("It is gone."))
    chat = _chat(stage, project)
    try:
        first = Expected(f"add a file {write}", manifest(project))
        chat.say(first.prompt)
        _need(project / "new.py", "was not written")
        (project / "notes.txt").write_text("edited between the turns\n")
        (project / "mine.txt").write_text("new between the turns\n")
        second = Expected(f"tidy up {remove}", manifest(project))
        chat.say(second.prompt)
    finally:
        chat.close()
    _need_no(project / "src", "was not removed")
    judge_timeline(stage, project, [first, second])
    judge_one_session(stage, project)
    judge_files(stage, project, [first, second])


def interrupt(stage: Stage, project: Path) -> None:
    """A turn that is interrupted is in the timeline at once, and is closed by the next prompt."""
    program = stage.program
    slow = "echo part > part.txt; rm README.md; sleep 300; echo never > never.txt"
    begin = stage.play("slow", Answer(calls=(program.shell(slow),)), Answer("Too late."))
    more = stage.play(
        "after", Answer(calls=(program.write(project / "after.py", "y = 2\n"),)), Answer("Done then.")
    )
    chat = _chat(stage, project)
    try:
        first = Expected(f"take your time {begin}", manifest(project), "interrupted")
        chat.interrupt(
            first.prompt, lambda: (project / "part.txt").exists() and not (project / "README.md").exists()
        )
        at_once = stage.turns(project)
        if len(at_once) != 1 or at_once[0]["status"] not in ("running", "interrupted"):
            raise Failed(f"right after the interrupt the timeline has {[turn['status'] for turn in at_once]}")
        (project / "notes.txt").write_text("edited after the interrupt\n")
        second = Expected(f"go on {more}", manifest(project))
        chat.say(second.prompt)
    finally:
        chat.close()
    _need(project / "after.py", "was not written")
    judge_timeline(stage, project, [first, second])
    judge_files(stage, project, [first, second])


def failing_tool(stage: Stage, project: Path) -> None:
    """What a tool wrote before it failed belongs to the turn."""
    program = stage.program
    fails = program.shell("echo half > half.txt; rm notes.txt; exit 3")
    tag = stage.play(
        "fails",
        Answer(calls=(fails,)),
        Answer(calls=(program.write(project / "then.py", "z = 3\n"),)),
        Answer("It failed."),
    )
    only = Expected(f"try it {tag}", manifest(project))
    Chat(stage, project).say(only.prompt)
    _need(project / "then.py", "was not written")
    _need(project / "half.txt", "was not written")
    judge_timeline(stage, project, [only])
    judge_files(stage, project, [only])


def parallel_calls(stage: Stage, project: Path) -> None:
    """Tool calls of one answer share one state before them."""
    program = stage.program
    writes = [program.write(project / name, f"{name}\n") for name in ("a.py", "b.py")]
    calls = (*writes, program.shell("echo c > c.txt; rm -r src"))
    tag = stage.play("parallel", Answer(calls=calls), Answer("All three."))
    only = Expected(f"all at once {tag}", manifest(project))
    Chat(stage, project).say(only.prompt)
    for name in ("a.py", "b.py", "c.txt"):
        _need(project / name, "was not written")
    judge_timeline(stage, project, [only])
    judge_files(stage, project, [only])


def subagent(stage: Stage, project: Path) -> None:
    """What a subagent does belongs to the turn that started it, and reverting that turn has no conflict."""
    program = stage.program.with_helpers()
    stage = Stage(program, stage.model, stage.home, stage.notes)
    task = stage.play("task", Answer(calls=(program.shell("echo sub > sub.txt; rm -r src"),)), Answer("Helped."))
    answers = program.helper(f"help with it {task}")
    if answers is None:
        raise NotThere("no subagents")
    tag = stage.play("helper", *(Answer(calls=tuple(calls)) for calls in answers), Answer("The helper is done."))
    only = Expected(f"let it be done {tag}", manifest(project))
    shown = Chat(stage, project).say(only.prompt)
    if stage.model.played("task") == 0:
        raise Failed(f"no subagent was started: {shown[-200:]!r}")
    _need(project / "sub.txt", "was not written")
    judge_timeline(stage, project, [only])
    judge_files(stage, project, [only])
    judge_revert(stage, project, only)


def resume(stage: Stage, project: Path) -> None:
    """A session that goes on after its end is the same session, and the conversation is cut at each prompt."""
    program = stage.program
    first_tag = stage.play(
        "first", Answer(calls=(program.write(project / "one.py", "1\n"),)), Answer("One is there.")
    )
    second_tag = stage.play("second", Answer(calls=(program.shell("rm -r src"),)), Answer("Two is gone."))
    first = Expected(f"the first {first_tag}", manifest(project))
    Chat(stage, project).say(first.prompt)
    _need(project / "one.py", "was not written")
    (project / "README.md").write_text("# edited between the sessions\n")
    second = Expected(f"the second {second_tag}", manifest(project))
    chat = _chat_again(stage, project)
    try:
        chat.say(second.prompt)
    finally:
        chat.close()
    _need_no(project / "src", "was not removed")
    judge_timeline(stage, project, [first, second])
    judge_one_session(stage, project)
    judge_files(stage, project, [first, second])


def conversation(stage: Stage, project: Path) -> None:
    """Judged in the project of the story before: what is kept with each turn is what was said before it."""
    if not stage.program.keeps_conversation:
        raise NotThere("no transcript")
    turns = [Expected(turn["prompt"].strip().strip('"'), {}) for turn in stage.turns(project)]
    if len(turns) != 2:
        raise Failed("the story of resuming did not come so far")
    judge_conversation(stage, project, turns, ["One is there.", "Two is gone."])


def rollback(stage: Stage, project: Path) -> None:
    """The list, a restore and its undo, called from the chat where the agent lets us answer there."""
    program = stage.program
    tag = stage.play("clean", Answer(calls=(program.shell("rm -r src; echo x > README.md"),)), Answer("Cleaned."))
    before = manifest(project)
    chat = _chat(stage, project)
    try:
        chat.say(f"clean up {tag}")
        _need_no(project / "src", "was not removed")
        after = manifest(project)
        judge_timeline(stage, project, [Expected(f"clean up {tag}", before)])
        asked = len(stage.model.prompts)
        listed = "clean up" if program.tells_prompt else "before "
        for words, wanted, shows in (("", after, listed), ("1", before, "undo"), ("undo", after, "README.md")):
            line = f"{program.rollback} {words}".strip()
            shown = (
                chat.say(line, shows="" if program.rollback_asks_model else shows)
                if program.rollback
                else stage.shadowsnap(project, "rollback", *words.split()).stdout
            )
            if manifest(project) != wanted:
                raise Failed(f"{line}: {difference(wanted, manifest(project))}; it showed {shown[-200:]!r}")
            if shows not in shown and not program.rollback_asks_model:
                raise Failed(f"{line} showed {shown[-300:]!r}")
    finally:
        chat.close()
    # Some agents ask for a title or a suggestion of their own meanwhile.
    stage.notes.append("asked meanwhile: " + repr([each[-300:] for each in stage.model.prompts[asked:]]))
    about = [prompt for prompt in stage.model.prompts[asked:] if "rollback" in prompt]
    if about and not program.rollback_asks_model:
        raise Failed(f"the model was asked: {about[0][-200:]!r}")


def _need(path: Path, what: str) -> None:
    if not path.exists():
        raise Failed(f"{path.name} {what}")


def _need_no(path: Path, what: str) -> None:
    if path.exists():
        raise Failed(f"{path.name} {what}")


Story = Callable[[Stage, Path], None]

STORIES: dict[str, Story] = {
    "two turns": two_turns,
    "interrupt": interrupt,
    "failing tool": failing_tool,
    "parallel": parallel_calls,
    "subagent": subagent,
    "resume": resume,
    "conversation": conversation,
    "rollback": rollback,
}
PLAYED_IN = {name: "resume" if name == "conversation" else name.replace(" ", "-") for name in STORIES}
"""The project of each story."""
