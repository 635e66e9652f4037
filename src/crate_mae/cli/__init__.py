"""The command line: a table from verb to typed function. Nothing heavy is imported before a verb runs."""

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import make_dataclass
from io import TextIOWrapper
from typing import Annotated, Any, Union

import tyro

from crate_mae.cli.apply import complete, embed
from crate_mae.cli.arguments import checked
from crate_mae.cli.bench import bench
from crate_mae.cli.data import data_check, data_pack
from crate_mae.cli.evaluate import evaluate, predict, probe
from crate_mae.cli.explore import demo, inspect, serve
from crate_mae.cli.models import convert, export, models, push
from crate_mae.cli.paper import reproduce, theory
from crate_mae.cli.parsing import parse
from crate_mae.cli.train import finetune, plan, pretrain
from crate_mae.disk_errors import remedy
from crate_mae.errors import UserError, did_you_mean

VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "models": models,
    "plan": plan,
    "pretrain": pretrain,
    "probe": probe,
    "finetune": finetune,
    "evaluate": evaluate,
    "predict": predict,
    "inspect": inspect,
    "complete": complete,
    "embed": embed,
    "export": export,
    "serve": serve,
    "convert": convert,
    "push": push,
    "theory": theory,
    "reproduce": reproduce,
    "bench": bench,
    "data pack": data_pack,
    "data check": data_check,
}

ABOUT = "Masked completion of images with white-box transformers."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb; bad input prints one sentence and exits with code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        from crate_mae import __version__

        print(f"crate-mae {__version__}")
        return
    _print_any_name()
    try:
        words = _check_verb(words)
        with _notes():
            if words[0] in VERBS:
                run(words[0], parse(VERBS[words[0]], words[0], words[1:]))
            else:
                tyro.cli(_list_of_verbs(), prog="crate-mae", description=ABOUT, args=words)
    except UserError as error:
        _end(f"crate-mae: error: {error}", 2)
    except BrokenPipeError:  # the program that reads the output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # a shell's exit code for SIGPIPE
    except OSError as error:
        what = ": ".join(str(part) for part in (error.filename, error.strerror) if part) or str(error)
        _end(f"crate-mae: error: {what}; {remedy(error)}, or choose another place.", 2)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C during the exit would print a traceback
        _end("crate-mae: stopped.", 130)


@contextmanager
def _notes() -> Iterator[None]:
    """Print warnings and the package's log as notes on stderr; under torchrun only the first process prints them."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("crate-mae: note: %(message)s"))
    handler.addFilter(lambda record: record.levelno > logging.INFO or os.environ.get("RANK", "0") == "0")
    log = logging.getLogger("crate_mae")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning)
            warnings.filterwarnings("ignore", ".*decompression bomb")  # Pillow's; check_claims is stricter
            warnings.showwarning = lambda message, *_, **__: print(f"crate-mae: note: {message}", file=sys.stderr)
            yield
    finally:
        log.removeHandler(handler)


def run(name: str, arguments: dict[str, Any]) -> None:
    """Check what can be checked before anything heavy is imported, then run the verb."""
    VERBS[name](**checked(name, arguments))


def _print_any_name() -> None:
    """A file name that is not UTF-8 is printed with escapes, in place of an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _list_of_verbs() -> Any:
    """All verbs without their arguments, for the help: parsing the arguments of each takes longer than everything else.

    Each is an empty dataclass with the verb's docstring, which tyro takes for a subcommand.
    """
    verbs = []
    for name, verb in VERBS.items():
        about = {"__doc__": (verb.__doc__ or "").split("Args:")[0]}
        verbs.append(Annotated[make_dataclass(verb.__name__, [], namespace=about), tyro.conf.subcommand(name)])
    return Union[tuple(verbs)]  # noqa: UP007


def _end(words: str, code: int) -> None:
    """Print one line and exit; one of torchrun's processes exits at once, since cleaning up may wait for the others."""
    print(words.replace("\r", "\\r").replace("\n", "\\n"), file=sys.stderr)  # a file name may contain a line break
    if "WORLD_SIZE" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _check_verb(words: list[str]) -> list[str]:
    """The words, with a verb of two words joined into one; the error for an unknown verb suggests a known one."""
    if not words:
        raise UserError(f"name a command: {', '.join(VERBS)}; crate-mae --help describes them.")
    if words[0] in ("--help", "-h") or words[0] in VERBS:
        return words
    verb, length = words[0], 1
    if any(known.startswith(f"{verb} ") for known in VERBS):
        if words[1:2] in (["--help"], ["-h"]):
            return ["--help"]
        verb, length = " ".join(words[:2]), 2
    if verb not in VERBS:
        raise UserError(f"there is no command {verb}; {did_you_mean(verb, VERBS)}")
    return [verb, *words[length:]]
