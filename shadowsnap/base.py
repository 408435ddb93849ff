"""Where the store and the settings file of this person lie. Every hook asks for that, so next to nothing is
imported here."""

import os
import sys


def configured_base() -> str:
    """Where the store of this person lies, who may have moved it in their settings file."""
    if not is_moved_by_variable():
        try:
            with open(config_file(), "rb") as file:
                mentioned = b"base" in file.read()
        except OSError:
            mentioned = False
        if mentioned:
            from shadowsnap.settings import load_settings  # here: few have moved it

            return os.fspath(load_settings().settings.resolved_base())
    return base_folder()


def is_moved_by_variable() -> bool:
    return bool(_folder_in_variable())


def _folder_in_variable() -> str:
    """What $SHADOWSNAP_HOME says, if it says something. A relative path is ignored: it would mean another store in
    each directory."""
    folder = os.path.expanduser(os.environ.get("SHADOWSNAP_HOME", ""))
    return folder if os.path.isabs(folder) else ""


def config_file() -> str:
    """The person's own settings file, whether it is there or not."""
    join = os.path.join
    if sys.platform == "win32":
        folder = os.environ.get("APPDATA") or join(_home(), "AppData", "Roaming")
    elif sys.platform == "darwin":
        folder = join(_home(), "Library", "Application Support")
    else:
        config = os.environ.get("XDG_CONFIG_HOME")
        folder = config if config and os.path.isabs(config) else join(_home(), ".config")
    return join(folder, "shadowsnap", "config.toml")


def base_folder() -> str:
    """Where the store lies by default."""
    join = os.path.join
    if folder := _folder_in_variable():
        return folder
    if sys.platform == "win32":
        return join(os.environ.get("LOCALAPPDATA") or join(_home(), "AppData", "Local"), "shadowsnap")
    if sys.platform == "darwin":
        return join(_home(), "Library", "Application Support", "shadowsnap")
    state = os.environ.get("XDG_STATE_HOME")
    # The XDG rules say that a relative value is to be ignored.
    return join(state if state and os.path.isabs(state) else join(_home(), ".local", "state"), "shadowsnap")


def _home() -> str:
    """The person's home directory. A variable that is empty, or relative, counts as not set."""
    if sys.platform == "win32" or os.path.isabs(os.environ.get("HOME", os.sep)):
        return os.path.expanduser("~")
    import pwd  # not on Windows

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user without a name, as in a container
        return os.sep


def project_id(workdir: str) -> str:
    """The id of the project at a canonical path."""
    import hashlib  # here: the client of a hook does without

    return hashlib.sha256(os.fsencode(workdir)).hexdigest()[:16]
