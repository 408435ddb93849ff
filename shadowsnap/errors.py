"""Every error that shadowsnap raises. The docstring of a class is its message, and each class has
a fixed exit code, so this file reads like the table in the documentation.

Exit codes: 1 failed, 2 wrong usage, 3 no such checkpoint or project, 4 refused because
something would be lost or confirmation is missing, 130 interrupted.
"""

from __future__ import annotations

from typing import Any


class ShadowsnapError(Exception):
    """{detail}"""

    exit_code = 1
    hint = ""

    def __init__(self, *, hint: str | None = None, **facts: Any) -> None:
        """`hint` replaces that of the class, if it depends on the case."""
        self.facts = facts
        self.hint = type(self).hint if hint is None else hint
        super().__init__((type(self).__doc__ or "").format(**facts))

    def to_dict(self) -> dict[str, str]:
        return {"type": type(self).__name__, "message": str(self), "hint": self.hint}


# --- git and the machine -------------------------------------------------------------------


class GitMissing(ShadowsnapError):
    """git was not found on the PATH"""

    hint = "install git 2.34 or newer"


class GitTooOld(ShadowsnapError):
    """git {found} is too old: shadowsnap needs {needed} or newer"""

    hint = "update git"


class GitFailed(ShadowsnapError):
    """git {command} failed with status {status}: {stderr}"""


class DeadlineExceeded(ShadowsnapError):
    """the time limit of {seconds:g} s ran out while {doing}"""

    hint = "raise the deadline setting, or name the paths that matter"


class OutOfResources(ShadowsnapError):
    """the system gives this process no more open files, memory or processes: {why}"""

    hint = "close what is not needed, or raise the limit (`ulimit -n`, `ulimit -u`); the next call tries again"


class RulesUnavailable(ShadowsnapError):
    """the ignore rules could not be had in time: {count} new files and directories were not captured"""

    hint = "look for patterns with many wildcards in .gitignore; `shadowsnap show` lists what was left out"


class LockTimeout(ShadowsnapError):
    """waited {seconds:.1f} s for the {name} lock, which is held by {holder}"""

    hint = "wait for that process, or end it: the lock goes with the process that holds it"


# --- the store -----------------------------------------------------------------------------


class StoreNotOurs(ShadowsnapError):
    """nothing is run in the store, because {path} is not safe: {why}"""

    exit_code = 4
    hint = "if it is yours, put it right (chmod 700, remove what does not belong); or set SHADOWSNAP_HOME"


class StoreTooNew(ShadowsnapError):
    """{path} was written by a newer shadowsnap (format {found}, this one knows {known})"""

    hint = "update shadowsnap"


class StoreUnusable(ShadowsnapError):
    """the store at {path} cannot be used: {why}"""

    hint = "check the path and its permissions; SHADOWSNAP_HOME or the setting base names another place"


class DiskFull(ShadowsnapError):
    """no space is left on the disk that holds {path}"""

    hint = "free some space there; what was stored before is safe"


class ClearRefused(ShadowsnapError):
    """nothing was cleared: a restore of {workdir} was interrupted and needs its checkpoints to be finished"""

    exit_code = 4
    hint = "any operation on that directory finishes it, a snapshot for example; then clear again"


class NothingToImport(ShadowsnapError):
    """{path} holds no checkpoints that shadowsnap knows how to import"""

    exit_code = 3
    hint = "name a store of Hermes or PraisonAI, or a repository with shadow branches of Entire"


class DamagedObject(ShadowsnapError):
    """object {id} is missing from the store or damaged"""

    hint = "the checkpoint that needs it cannot be restored in full; others are not affected"


class UnsafeTree(ShadowsnapError):
    """a checkpoint holds an entry called {name!r}, which is not written: {why}"""

    exit_code = 4
    hint = "it was not taken by shadowsnap; `shadowsnap doctor --repair` sets such checkpoints aside"


class TreeTooLarge(UnsafeTree):
    """a checkpoint would hold more than {most:,} paths, or {length} MB of them, which are not gone through"""

    hint = "exclude directories from snapshots; `shadowsnap doctor --repair` sets aside what was not taken here"


class MalformedObject(ShadowsnapError):
    """cannot read {what}: {why}"""


class CheckpointsLost(ShadowsnapError):
    """the checkpoints of {workdir} are gone although none was dropped; no space is reclaimed until that is \
repaired"""

    hint = "run `shadowsnap doctor`"


class DiskTooFull(ShadowsnapError):
    """{doing} needs {needed} MB of free disk space, and there are {free}"""

    hint = "free some space; what was dropped is reclaimed then"


# --- references ----------------------------------------------------------------------------


class CheckpointsSetAside(ShadowsnapError):
    """every checkpoint of {workdir} was damaged; what is left of them is in {place}"""

    hint = "if you have a copy of the store, bring it back; new snapshots are taken as before"


class NoSuchProject(ShadowsnapError):
    """there are no checkpoints of {workdir}"""

    exit_code = 3
    hint = "shadowsnap snap takes one; shadowsnap install AGENT lets your agent take them"


class NoSuchCheckpoint(ShadowsnapError):
    """there is no checkpoint {ref!r} of {workdir}"""

    exit_code = 3
    hint = "shadowsnap list shows what there is"


class AmbiguousReference(ShadowsnapError):
    """{ref!r} fits {count} {what}: {candidates}"""

    exit_code = 3
    hint = "give more of it"


class MalformedReference(ShadowsnapError):
    """{ref!r} is not a checkpoint reference"""

    exit_code = 2
    hint = "use a number of the list, 3:after, last, last~2, a label, or 4 and more digits of an id"


class BadArguments(ShadowsnapError):
    """{what}"""

    exit_code = 2


class MalformedLabel(ShadowsnapError):
    """{label!r} cannot be a label: {why}"""

    exit_code = 2


class ForeignCheckpoint(ShadowsnapError):
    """checkpoint {ref!r} belongs to another project ({other}), not to {workdir}"""

    exit_code = 3
    hint = "run the command in the directory the checkpoint was taken of"


# --- refusals ------------------------------------------------------------------------------


class DirectoryMissing(ShadowsnapError):
    """{workdir} is not there, or is not a directory"""

    exit_code = 3
    hint = "its checkpoints are safe: make an empty directory there, then restore"


class DirectoryRefused(ShadowsnapError):
    """{workdir} is not snapshotted as a whole: {why}"""

    exit_code = 4
    hint = "name single files, or choose the project's own directory"


class PathRefused(ShadowsnapError):
    """path {path!r} is refused: {why}"""

    exit_code = 4


class NoSuchPath(ShadowsnapError):
    """{path!r} is neither in {ref} nor among the captured files now"""

    exit_code = 3
    hint = "shadowsnap ls REF lists the files of a state"


class NotAFile(NoSuchPath):
    """{path!r} is a directory in {state}"""

    hint = "shadowsnap ls lists what is in it"


class NotCaptured(NoSuchPath):
    """{state} does not hold {path!r}: it was not captured ({why})"""

    hint = "a restore leaves it as it is; shadowsnap docs promises says what is not captured, and why"


class NotHeld(NoSuchPath):
    """no checkpoint of {workdir} holds {path!r}"""

    hint = "name it as it is within the project; it may have been purged already"


class NothingToBlame(NoSuchPath):
    """{path!r} is not a captured file of {workdir}"""

    hint = "name a file that is there; `shadowsnap list --file PATH` finds one that was deleted"


class RestoreRefused(ShadowsnapError):
    """nothing was restored, because it could not be undone: {conflicts}"""

    exit_code = 4
    hint = "move these paths out of the way, or restore other paths only"


class RevertRefused(ShadowsnapError):
    """nothing was reverted, because others changed the same since in {paths}"""

    exit_code = 4
    hint = "revert their work first, or revert single turns"


class PresentNotSaved(ShadowsnapError):
    """nothing was restored, because the present state could not be saved first: {why}"""

    exit_code = 4


class RestoreFailed(ShadowsnapError):
    """the restore could not be finished and everything was put back: {why}"""


class RestoreStranded(ShadowsnapError):
    """the restore could not be finished, and putting it back failed too: {why}; every version is safe as \
checkpoint {before} and {target}, moved files are in {staging}"""

    hint = "the next operation on this project tries again to finish it"


class DirtyWorkingTree(ShadowsnapError):
    """{workdir} holds changes that are in no checkpoint: {changes}"""

    exit_code = 4
    hint = "take a snapshot first, so that a stage can be put back without losing them"


class StageClosed(ShadowsnapError):
    """the stage was {how} already"""

    exit_code = 2


class NoSuchTurn(ShadowsnapError):
    """there is no record of {what} in {workdir}"""

    exit_code = 3
    hint = "shadowsnap list shows the numbers"


class NumberDropped(NoSuchTurn):
    """number {number} of {workdir} is not kept any more"""

    hint = "a limit or `shadowsnap delete` dropped it; shadowsnap list shows what is left"


class NotATurn(NoSuchTurn):
    """number {number} of {workdir} is a snapshot, and only turns can be taken out"""

    hint = "restore goes back to a snapshot; shadowsnap list shows the turns"


class NoSuchSession(ShadowsnapError):
    """nothing is known of a session {session_id!r}"""

    exit_code = 3
    hint = "shadowsnap sessions lists those that are known"


class NoConversation(ShadowsnapError):
    """no conversation is kept with {ref}{why}"""

    exit_code = 3
    hint = "shadowsnap sessions show ID lists the turns that have one"


class NothingToUndo(ShadowsnapError):
    """nothing that changed files in {workdir} is left to undo"""

    exit_code = 3


class NothingToRedo(ShadowsnapError):
    """there is nothing in {workdir} to redo: nothing was undone, or the files changed since"""

    exit_code = 3


class ForkRefused(ShadowsnapError):
    """nothing was written to {path}: {why}"""

    exit_code = 4
    hint = "name a directory that does not exist yet, or an empty one"


class ReportRefused(ShadowsnapError):
    """nothing was written to {path}: {why}"""

    exit_code = 4
    hint = "name another file, or -o - for the standard output; --force replaces a plain file"


class BisectFailed(ShadowsnapError):
    """no turn can be named: {why}"""

    hint = "`shadowsnap bisect --all` shows the outcome for every state"


class PlanOutdated(ShadowsnapError):
    """nothing was changed: the files are not as they were when plan {token} was made"""

    exit_code = 4
    hint = "have a new plan made"


class NoSuchPlan(ShadowsnapError):
    """there is no plan {token!r} of {workdir}"""

    exit_code = 3
    hint = "a plan can be confirmed for an hour, in the project that it was made for"


class ExtraMissing(ShadowsnapError):
    """{what} needs a package that is not installed: pip install 'shadowsnap[{extra}]'"""


# --- lanes on a remote ------------------------------------------------------------------------


class NoRemote(ShadowsnapError):
    """no remote is set for {workdir}"""

    exit_code = 3
    hint = (
        "set one: shadowsnap remote add NAME URL --to RECIPIENT (shadowsnap docs remote);"
        " lanes URL and resume LANE --remote URL need none"
    )


class RemoteExists(ShadowsnapError):
    """{workdir} already has a remote: {name}, {url}"""

    exit_code = 2
    hint = "a project has exactly one: remove it first with shadowsnap remote remove"


class BadRemote(ShadowsnapError):
    """{url} cannot be a remote: {why}"""

    exit_code = 2


class RemoteFailed(ShadowsnapError):
    """the remote {url} failed: {why}"""

    hint = "nothing is lost: what is not pushed yet stays here, and the next push sends it"


class LaneRefused(ShadowsnapError):
    """nothing was taken from lane {lane}: {why}"""

    exit_code = 4
    hint = "the remote holds something that its lane's machine did not write, or not all of it"


class NoSuchLane(ShadowsnapError):
    """there is no lane {lane!r} at {url}"""

    exit_code = 3
    hint = "shadowsnap lanes lists those that are there"


class AmbiguousLane(ShadowsnapError):
    """{lane!r} fits {count} lanes: {candidates}"""

    exit_code = 3
    hint = "name one by its id; the first digits after the slash will do"


class KeyNeeded(ShadowsnapError):
    """{what} is encrypted, and {why}"""

    exit_code = 4
    hint = "name the file with your private key: --key FILE"


class BadKey(ShadowsnapError):
    """{what} is no usable key: {why}"""

    exit_code = 2
    hint = "shadowsnap remote keygen makes a pair of keys"


class OtherProject(ShadowsnapError):
    """{workdir} is not a checkout of the lane's project ({project}): {why}"""

    exit_code = 4
    hint = "name a checkout of that project, or a directory that does not exist yet"


# --- the command line ------------------------------------------------------------------------


class WrongUsage(ShadowsnapError):
    """{why}"""

    exit_code = 2
    hint = "shadowsnap help lists the commands, shadowsnap help COMMAND explains one"


class OutputFailed(ShadowsnapError):
    """the answer could not be written: {why}"""

    hint = "the command itself was carried out"


class NoSuchTopic(ShadowsnapError):
    """there is no documentation on {topic!r}, only on {topics}"""

    exit_code = 2


class NotConfirmed(ShadowsnapError):
    """nothing was changed: {why}"""

    exit_code = 4
    hint = "--yes does it without asking; --dry-run shows what it would do"


class PinnedCheckpoint(ShadowsnapError):
    """{ref} is pinned"""

    exit_code = 4
    hint = "unpin it first: shadowsnap unpin REF"


class Interrupted(ShadowsnapError):
    """interrupted; nothing was left half done"""

    exit_code = 130


# --- agents --------------------------------------------------------------------------------


class UnknownAgent(ShadowsnapError):
    """{agent!r} is not an agent that a hook can be installed into; known are {known}"""

    exit_code = 2
    hint = "any agent that can run a command before a tool can use the generic hook: shadowsnap docs hooks"


class SettingsRefused(ShadowsnapError):
    """{path} was left as it is: {why}"""

    exit_code = 4
    hint = "correct the file, or add the hook by hand: shadowsnap docs agents shows what it looks like"
