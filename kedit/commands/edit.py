"""``kedit edit``: insert and ask at a prompt, or from a script."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kedit.commands.live import opened, session_options
from kedit.commands.shared import clear_errors
from kedit.errors import KeditError

if TYPE_CHECKING:
    from kedit.live.session import Entry, Reply, Session

PROMPT = "kedit> "
_LEAVE = ("quit", "exit")


@click.command()
@session_options
@click.option("-c", "--command", "given", multiple=True, help="A command to run instead of those of the input; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print what every command gives as one line of JSON.")
@click.option("--stop-on-error", is_flag=True, help="End at the first command that fails.")
@clear_errors
def edit(given: tuple[str, ...], as_json: bool, stop_on_error: bool, **options: Any) -> None:
    """Insert knowledge into a backbone and ask it, one command at a time: a prompt, or a script on standard input.

    Commands: insert, ask, list, remove, undo, reset, save, load, history, help, quit. An error never ends the session.
    Exit status of a script: 0, or 1 where a command failed.
    """
    shell = Shell(opened(**options), as_json)
    if given:
        shell.script(given, stop_on_error)
    elif sys.stdin.isatty():
        shell.converse()
    else:
        shell.script(_lines(), stop_on_error)


class Shell:
    """Reads commands, runs them on a session, tells what came back."""

    def __init__(self, session: Session, as_json: bool = False) -> None:
        self.session = session
        self.as_json = as_json
        self.history: list[str] = []

    def script(self, lines: Iterable[str | UnicodeDecodeError], stop: bool = False) -> None:
        """Run commands to the end; SystemExit with 1 where one failed, with 130 after Ctrl-C."""
        failed = False
        for number, line in enumerate(lines, 1):
            if isinstance(line, str) and line.strip() in _LEAVE:
                break
            try:
                sound = self.run(line, f"line {number}: ")
            except KeyboardInterrupt:
                raise SystemExit(130) from None
            failed = failed or not sound
            if stop and failed:
                break
        if failed:
            raise SystemExit(1)

    def converse(self) -> None:
        """Prompt until the user leaves; Ctrl-C ends a command, not the session."""
        session = self.session
        click.echo(f"{session.backbone.id}, {session.editor.name}, {len(session.entries)} inserted. help lists the commands.")
        with _remembered():
            while True:
                try:
                    line = input(PROMPT)
                    if line.strip() in _LEAVE:
                        raise EOFError
                    self.run(line)
                except KeyboardInterrupt:
                    click.echo("interrupted; press Ctrl-D or type quit to leave", err=True)
                except EOFError:
                    if self._may_leave():
                        return

    def _may_leave(self) -> bool:
        click.echo()
        if not self.session.unsaved:
            return True
        try:
            return click.confirm(f"{self.session.unsaved} changes are not saved (save FOLDER). Leave?", default=False)
        except click.Abort:
            return True

    def run(self, line: str | UnicodeDecodeError, place: str = "") -> bool:
        """One command; whether it went well. Raises KeyboardInterrupt where it was interrupted, and no other error."""
        try:
            if isinstance(line, UnicodeDecodeError):
                raise click.UsageError(f"the line is not UTF-8 ({line.reason} at byte {line.start}); nothing was done")
            words = _words(line)
            if words:
                self.history.append(line.strip())
                language.main(args=words, prog_name="", standalone_mode=False, obj=self)
            return True
        except (KeyboardInterrupt, click.Abort):
            raise KeyboardInterrupt from None
        except click.ClickException as error:
            self._wrong(place, error.format_message())
        except KeditError as error:
            self._wrong(place, str(error))
        except Exception as error:  # noqa: BLE001 - whatever an editor raises, the session goes on
            self._wrong(place, f"{type(error).__name__}: {error}")
        return False

    def _wrong(self, place: str, message: str) -> None:
        from kedit.report.escape import visible

        if self.as_json:
            click.echo(json.dumps({"error": message, "at": place.rstrip(": ")}, ensure_ascii=False))
        click.echo(visible(f"{place}Error: {message}", keep="\n\t"), err=True)

    def tell(self, text: str, **data: Any) -> None:
        """What a command gives: text for people, or JSON."""
        from kedit.report.escape import visible

        click.echo(json.dumps(data, ensure_ascii=False) if self.as_json else visible(text, keep="\n\t"))


def _words(line: str) -> list[str]:
    if line.lstrip().startswith("#"):
        return []
    try:
        return shlex.split(line)
    except ValueError as error:
        raise click.UsageError(f"{error}; put texts with an apostrophe into double quotes") from error


def _lines() -> Iterator[str | UnicodeDecodeError]:
    for line in sys.stdin.buffer:
        try:
            yield line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            yield error


@contextlib.contextmanager
def _remembered() -> Iterator[None]:
    """Arrow keys bring back earlier commands, also those of earlier sessions, where the system has a readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    from kedit.locks import cache_folder

    file = cache_folder() / "edit-history"
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_history_length(1000)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)


# -- the commands ------------------------------------------------------------------------------------------------------


@click.group(add_help_option=False)
def language() -> None:
    """What can be typed; COMMAND --help says more of one."""


_image_option = click.option("--image", "images", multiple=True, metavar="FILE", help="May be repeated.")
_language_option = click.option("--language", metavar="CODE", help="Such as en, zh or ar; told from the script if left out.")


@language.command()
@click.argument("words", nargs=-1, required=True, metavar="FILE | QUESTION ANSWER")
@_image_option
@_language_option
@click.option("--title", default="", help="What it is about.")
@click.option("--text", default="", help="A summary or document, for editors that show one.")
@click.pass_obj
def insert(shell: Shell, words: tuple[str, ...], images: tuple[str, ...], language: str | None, title: str, text: str) -> None:
    """Insert one answer, or every row of a JSON-lines file: all of it or, after an error, none."""
    if len(words) == 1:
        if images or language or title or text:
            raise click.UsageError("options are for a question and an answer; a file has fields for them in its rows")
        done = shell.session.insert_file(words[0])
    elif len(words) == 2:
        done = shell.session.insert(*words, images, language=language, title=title, text=text)
    else:
        raise click.UsageError(f"got {len(words)} texts, expected a file, or a question and an answer, each in quotes")
    lines = [*(_entry(entry) for entry in done.entries), *done.notes]
    shell.tell("\n".join(lines), inserted=[_data(entry) for entry in done.entries], notes=list(done.notes))


@language.command()
@click.argument("question", nargs=-1, required=True)
@_image_option
@_language_option
@click.pass_obj
def ask(shell: Shell, question: tuple[str, ...], images: tuple[str, ...], language: str | None) -> None:
    """Ask, and show what the unedited and what the edited model says, and which entry the editor took for it."""
    reply = shell.session.ask(" ".join(question), images, language=language)
    before = None if reply.before is None else reply.before.text
    shell.tell(
        _answers(reply),
        question=reply.request.question,
        language=reply.request.language,
        before=before,
        after=reply.after.text,
        changed=reply.changed,
        routing=dict(reply.trace),
        missing=reply.missing,
    )


@language.command("list")
@click.pass_obj
def list_(shell: Shell) -> None:
    """What is inserted, with the numbers by which it is removed."""
    entries = shell.session.entries
    shell.tell("\n".join(map(_entry, entries)) or "nothing is inserted", entries=[_data(entry) for entry in entries])


@language.command()
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="NUMBER...")
@click.pass_obj
def remove(shell: Shell, numbers: tuple[int, ...]) -> None:
    """Take entries back, by number."""
    _gone(shell, shell.session.remove(*numbers))


@language.command()
@click.pass_obj
def undo(shell: Shell) -> None:
    """Take back what the last insert inserted; again for the one before."""
    _gone(shell, shell.session.undo(), "there is no insert to take back")


@language.command()
@click.pass_obj
def reset(shell: Shell) -> None:
    """Take everything back."""
    _gone(shell, shell.session.reset(), "nothing is inserted")


@language.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.pass_obj
def save(shell: Shell, folder: Path) -> None:
    """Write what is inserted to a folder."""
    shell.session.save(folder)
    count = len(shell.session.entries)
    shell.tell(f"{count} {'entry' if count == 1 else 'entries'} saved to {folder}", saved=str(folder), entries=count)


@language.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.pass_obj
def load(shell: Shell, folder: Path) -> None:
    """Insert what was saved, where nothing is inserted yet."""
    notes = shell.session.load(folder)
    entries = shell.session.entries
    shell.tell("\n".join([*map(_entry, entries), *notes]), entries=[_data(entry) for entry in entries], notes=list(notes))


@language.command()
@click.pass_obj
def history(shell: Shell) -> None:
    """The commands of this session."""
    shell.tell("\n".join(shell.history), history=shell.history)


@language.command("help")
def help_() -> None:
    """This list. quit (or the end of the input) leaves."""
    for name, command in sorted(language.commands.items()):
        click.echo(f"{name:8} {(command.help or '').splitlines()[0]}")
    click.echo("COMMAND --help lists the options of one.")


def _gone(shell: Shell, entries: Iterable[Entry], nothing: str = "") -> None:
    gone = list(entries)
    shell.tell("\n".join(f"taken back: {_entry(entry)}" for entry in gone) or nothing, removed=[_data(entry) for entry in gone])


def _entry(entry: Entry) -> str:
    asked = entry.knowledge.request
    images = f"  [{len(asked.images)} image{'s' * (len(asked.images) > 1)}]" if asked.images else ""
    return f"{entry.number:>3}  {asked.language}  {asked.question} -> {entry.knowledge.answer}{images}"


def _data(entry: Entry) -> dict[str, Any]:
    item = entry.knowledge
    return {
        "number": entry.number,
        "question": item.request.question,
        "answer": item.answer,
        "language": item.request.language,
        "images": len(item.request.images),
        "title": item.title,
    }


def _answers(reply: Reply) -> str:
    from kedit.live.session import routing

    before = f"({reply.missing})" if reply.before is None else reply.before.text
    lines = [f"before   {before}", f"after    {reply.after.text}" + ("" if reply.changed else "   (the same)")]
    told = routing(reply.trace)
    return "\n".join([*lines, f"routing  {told}"] if told else lines)
