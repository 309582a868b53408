"""Flags of the command line, one for each setting, and what becomes of them: a spec, or a sentence.

No setting is checked here but by its spec: what a flag says is refused in the spec's own words.
"""

import argparse
import dataclasses
import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin

from core import specs, texts
from core.specimens import texts_folder
from core.specs import SPEC_KINDS, SPECIMENS, Spec

MAX_SPEC_BYTES = 100_000
MAX_THREADS = 256
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_WIDTH = 100  # columns of the help text
_INDENT = " " * 26


class Refused(Exception):
    """A command line that cannot be used; the text is the one sentence that its author gets."""


# -- the flags ----------------------------------------------------------------------------------

Allowed = tuple[float, float] | tuple[str, ...]  # lowest and highest value, or the names


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """What a setting means and what it may be, for the help text."""

    what: str  # with its unit
    allowed: Allowed = ()
    but: Mapping[str, Allowed] = field(default_factory=dict)  # specimen -> what it allows instead
    rule: str = ""  # in place of both

    def allowed_for(self, specimen: str) -> Allowed:
        return self.but.get(specimen, self.allowed)


FLAGS = {
    "optimizer": Flag(what="rule that turns gradients into updates", allowed=specs.OPTIMIZERS),
    "learning_rate": Flag(
        what="how far an update moves each weight against its gradient", allowed=(1e-6, 10)
    ),
    "batch_size": Flag(
        what="examples of an update (of each of its micro-batches); of a text, windows",
        allowed=(1, 512),
        but={"playground": (1, specs.MAX_BATCH)},
    ),
    "precision": Flag(
        what="numbers it computes with; bf16 and fp16 in matrix products only",
        allowed=specs.MIXED_PRECISIONS,
        but={"playground": specs.PRECISIONS},
    ),
    "seed": Flag(what="of data, first weights and order", allowed=(0, specs.MAX_SEED)),
    "problem": Flag(what="which 2-D data", allowed=specs.PROBLEMS),
    "noise": Flag(what="share of noise in the 2-D data", allowed=(0, specs.MAX_NOISE)),
    "features": Flag(what="inputs of the network, commas between", allowed=specs.FEATURES),
    "hidden": Flag(
        what="neurons of each hidden layer, commas between: up to "
        f"{specs.MAX_DEPTH} layers, or `none`",
        allowed=(1, specs.MAX_WIDTH),
    ),
    "activation": Flag(what="of the hidden layers", allowed=specs.ACTIVATIONS),
    "n_epochs": Flag(
        what="passes over the training data until it ends", allowed=(1, specs.MAX_EPOCHS)
    ),
    "n_layer": Flag(
        what="hidden layers of a perceptron, blocks of a transformer",
        allowed=(1, specs.MAX_LAYERS),
        but={"digits": (0, specs.MAX_LAYERS)},
    ),
    "d_model": Flag(
        what="neurons of each hidden layer; of a transformer, width of the residual\n"
        "stream, a multiple of twice n-head",
        allowed=(8, specs.MAX_D_MODEL),
        but={"digits": (1, specs.MAX_D_MODEL)},
    ),
    "n_head": Flag(what="attention heads of a block", allowed=(1, 64)),
    "architecture": Flag(
        what="gpt: LayerNorm, GELU, learned positions; llama: RMSNorm, SwiGLU, RoPE",
        allowed=specs.ARCHITECTURES,
    ),
    "attention": Flag(
        what="in tiles, or with scores and probabilities as tensors of their own",
        allowed=specs.ATTENTIONS,
    ),
    "seq_len": Flag(
        what="characters the model sees at once",
        allowed=(8, specs.MAX_CONTEXT),
        but={"addition": (8, 8)},
    ),
    "accumulation": Flag(what="micro-batches of an update", allowed=(1, 16)),
    "checkpointing": Flag(
        what="keep only each block's input, and compute the rest again in backward;\n"
        "alone it means true",
        allowed=("true", "false"),
    ),
    "dropout": Flag(what="share of numbers put to zero in training", allowed=(0, 0.5)),
    "n_steps": Flag(what="updates until it ends", allowed=(1, specs.MAX_STEPS)),
    "text": Flag(
        what="name under which a text is kept here",
        rule="32 hexadecimal digits; or give --text-file",
    ),
}


def flag_of(setting: str) -> str:
    return "--" + setting.replace("_", "-")


def specimens_with(setting: str) -> dict[str, dataclasses.Field]:
    """The specimens that have a setting, with their field."""
    return {
        specimen: f
        for specimen in SPECIMENS
        for f in dataclasses.fields(SPEC_KINDS[specimen])
        if f.name == setting
    }


def _explained(setting: str) -> str:
    """A setting's meaning, then a line for each group of specimens that treat it alike."""
    flag = FLAGS[setting]
    groups: dict[str, list[str]] = {}
    fields = specimens_with(setting)
    for specimen, f in fields.items():
        rule = flag.rule or _rule(f.type, flag.allowed_for(specimen))
        default = f", default {_shown(f.default)}" if f.default != "" else ""
        groups.setdefault(rule + default, []).append(specimen)
    all_alike = len(groups) == 1 and len(fields) == len(SPECIMENS)
    lines = (f"{'all' if all_alike else ', '.join(of)}: {rule}" for rule, of in groups.items())
    return "\n".join([flag.what, *lines])


def _rule(kind: Any, allowed: Allowed) -> str:
    low = allowed[0]
    if isinstance(low, str):
        return " | ".join(map(str, allowed))
    noun = "number" if kind is float else "whole number"
    return f"{noun} {low:.10g} to {allowed[1]:.10g}" if low != allowed[1] else f"{noun} {low:g}"


def _shown(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return ",".join(map(str, value))
    return str(value)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        flag = message.removeprefix("argument ").split(":")[0]
        if "expected one argument" in message:
            raise Refused(f"{flag} has no value; give one after it")
        raise Refused(f"{flag} takes no value; leave it out")


def parser(command: str, about: str, *, runs: bool) -> argparse.ArgumentParser:
    """The flags of a command on a spec; `runs`: it also takes what a run needs."""
    made = Parser(
        prog=f"python -m core {command}",
        usage=f"python -m core {command} --specimen NAME [flags]",
        description=about,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.RawTextHelpFormatter(
            prog, max_help_position=len(_INDENT), width=_WIDTH
        ),
    )
    what = made.add_argument_group("what is trained")
    what.add_argument(
        "--specimen",
        metavar="NAME",
        help=" | ".join(SPECIMENS) + "\nneeded unless --spec names it",
    )
    what.add_argument(
        "--spec",
        metavar="FILE.json",
        help=f"settings as a JSON object, as results hold under `spec`; up to {MAX_SPEC_BYTES:,}\n"
        "bytes; flags go before it; default: none",
    )
    what.add_argument(
        "--text-file",
        metavar="PATH",
        help=f"text: the text to learn from, UTF-8, up to {texts.MAX_TEXT_BYTES:,} bytes, at least "
        f"{texts.MIN_TEXT_CHARACTERS}\ncharacters; a copy is kept with the runs; default: none",
    )
    if runs:
        how = made.add_argument_group("how it runs")
        how.add_argument(
            "--threads",
            metavar="N",
            default="1",
            help=f"processor threads of the numeric libraries: whole number 1 to {MAX_THREADS},\n"
            "default 1, at which a spec gives the same bits every time",
        )
        how.add_argument(
            "--out",
            metavar="FOLDER",
            help="run folder to write, new or without a run; default: a new temporary one",
        )
    settings = made.add_argument_group("settings, each refused where a specimen does not have it")
    for setting in FLAGS:
        # A switch too: alone it means true.
        nargs, const = ("?", "true") if setting == "checkpointing" else (None, None)
        settings.add_argument(
            flag_of(setting), metavar="VALUE", help=_explained(setting), nargs=nargs, const=const
        )
    return made


def parsed(made: argparse.ArgumentParser, argv: Sequence[str]) -> dict[str, str]:
    """What was given, by flag without dashes. Raises: Refused."""
    known = {option for action in made._actions for option in action.option_strings}
    given, extra = made.parse_known_args(_negatives_joined(argv, known))
    if extra:
        name = extra[0].split("=")[0]
        near = difflib.get_close_matches(name, sorted(known), 1, 0.75)
        remedy = f"did you mean {near[0]}" if near else f"{made.prog} --help lists the flags"
        raise Refused(f"{_brief(extra[0])} is no flag of {made.prog}; {remedy}")
    return {name: value for name, value in vars(given).items() if value is not None}


def _negatives_joined(argv: Sequence[str], known: set[str]) -> list[str]:
    """`--noise -1e3` as `--noise=-1e3`: argparse would take the number for a flag."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] in known and re.match(r"-(\.?\d|inf|nan)", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


# -- from flags to a spec -----------------------------------------------------------------------


def spec_of(given: dict[str, str]) -> Spec:
    """The spec that flags and files describe. Raises: Refused."""
    record = _spec_file(given["spec"]) if "spec" in given else {}
    named = record.get("specimen")
    default = "playground" if "spec" in given else None  # as in every file of settings
    specimen = given.get("specimen", named or default)
    if specimen is None:
        raise Refused(f"--specimen is missing; choose one of {', '.join(SPECIMENS)}")
    if specimen not in SPECIMENS:
        raise Refused(
            f"specimen={_brief(specimen)} is unknown; choose one of {', '.join(SPECIMENS)}"
        )
    if named is not None and named != specimen:
        raise Refused(
            f"--specimen={specimen} is not the file's specimen={_brief(named)}; leave one of them "
            "out"
        )
    fields = {f.name: f for f in dataclasses.fields(SPEC_KINDS[specimen])}
    settings = {name: given[name] for name in FLAGS if name in given}
    for name, value in settings.items():
        if name not in fields:
            raise Refused(
                f"{flag_of(name)}={_brief(value)} is no setting of specimen {specimen}; "
                f"it has {', '.join(map(flag_of, sorted(fields)))}"
            )
    record |= {name: value_of(fields[name].type, text) for name, text in settings.items()}
    if "text_file" in given:
        record["text"] = _kept_text(given, specimen)
    elif specimen == "text" and not record.get("text"):
        raise Refused("--text-file is missing for specimen text; give it a UTF-8 text file")
    try:
        return Spec.from_json(record | {"specimen": specimen})
    except ValueError as why:
        raise Refused(str(why)) from None


def threads_of(given: dict[str, str]) -> int:
    text = given["threads"]
    if not re.fullmatch(r"\d{1,3}", text, re.ASCII) or not 1 <= int(text) <= MAX_THREADS:
        raise Refused(
            f"--threads={_brief(text)} is not a whole number from 1 to {MAX_THREADS}; choose 1"
        )
    return int(text)


def limit_threads(n_threads: int) -> None:
    """Before numpy and torch are loaded, which read it then and never again."""
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(n_threads)))
    os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler writes to stderr below that


def value_of(kind: Any, text: str) -> Any:
    """A flag's text as its field's type; as it is where it is none, for the spec to refuse."""
    if get_origin(kind) is tuple:
        parts = [] if text.strip() in ("", "none") else text.split(",")
        return tuple(value_of(get_args(kind)[0], part.strip()) for part in parts)
    if kind is bool:
        return {"true": True, "false": False}.get(text, text)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def _spec_file(path: str) -> dict[str, Any]:
    raw = _read(path, "--spec", MAX_SPEC_BYTES, "a JSON file of settings")
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        raise Refused(
            f"--spec={_brief(path)} is not JSON; give the object that a result holds under `spec`"
        ) from None
    if not isinstance(record, dict):
        raise Refused(
            f"--spec={_brief(path)} holds no object; give the one that a result holds under `spec`"
        )
    return record


def _kept_text(given: dict[str, str], specimen: str) -> str:
    path = given["text_file"]
    if specimen != "text":
        raise Refused(
            f"--text-file={_brief(path)} is no flag of specimen {specimen}; leave it out or choose "
            "--specimen text"
        )
    if "text" in given:
        raise Refused(
            f"--text-file={_brief(path)} and --text name two texts; leave one of them out"
        )
    raw = _read(path, "--text-file", texts.MAX_TEXT_BYTES, "a plain text file")
    try:
        return texts.keep(texts.decoded(raw), texts_folder())
    except ValueError as why:
        raise Refused(f"--text-file={_brief(path)}: {why}") from None
    except OSError as why:
        raise Refused(
            f"the text cannot be kept in {texts_folder()} ({why.strerror}); set BOTHWAYS_RUNS to a "
            "folder that can be written"
        ) from None


def _read(path: str, flag: str, max_bytes: int, wanted: str) -> bytes:
    """A file whole, but never more than one byte over the limit. Raises: Refused."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(max_bytes + 1)
    except (OSError, ValueError) as why:  # ValueError: a zero byte in the name
        reason = getattr(why, "strerror", None) or "no file name"
        raise Refused(f"{flag}={_brief(path)} cannot be read ({reason}); name {wanted}") from None
    if len(raw) > max_bytes:
        raise Refused(f"{flag}={_brief(path)} has more than {max_bytes:,} bytes; take a part of it")
    return raw


def _brief(value: object) -> str:
    """A value as one can quote it in a sentence."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:60] + "…" + shown[-1]
