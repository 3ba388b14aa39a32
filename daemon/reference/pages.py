#!/usr/bin/env python3
"""The reference pages, from the tables of the programs.

    pages.py TABLES page FILE [--write]         FILE with the tables between its marks as they are now
    pages.py TABLES man zerod|zerodctl|job.toml

TABLES is zerod-tables. A page of docs/ has each table between `<!-- NAME: ..` and `<!-- end of NAME -->`; what a person wrote
around them stays. Words between backticks are bold in man pages."""

import itertools
import json
import re
import subprocess
import sys

MAN_DATE = "2026-11-21"  # of this version: the date of the build would make every build differ

RULES = """\
A job file is TOML, with one section for each part of the program. Every key is optional but for a model (`model.path` or
[model.config]) and something to train on ([[data.train]]).

An unknown key, a wrong type, a value out of range and settings that contradict each other are errors, all of them reported
in one run. `zerod validate` shows them without starting anything, and with `--print` every value and where it came from.

Integers may be written `5e8`; sizes "64MiB", "5GB" or a number of bytes; times "90s", "30m", "1h30m". Words are not
case-sensitive. Paths are relative to the directory in which `zerod` is started.

`--set section.key=value` on the command line overrides the file."""

EXAMPLE = """\
[model]
path = "models/Llama-3.2-1B"

[data]
cutoff_len = 2048
[[data.train]]
path = "data/*.jsonl"

[train]
num_train_epochs = 1.0
global_batch_size = 64
per_device_train_batch_size = 1

[zero]
stage = 3
"""

# What the tables cannot say of the programs.
NOTES = {
    "zerod": {
        "DESCRIPTION": """\
Trains and fine-tunes language models, sharded over MPI ranks by ZeRO stages 0 to 3, with states on the host or on NVMe
where the device has no room. A job file says what to do; see job.toml(5). Started by `mpirun` or `srun` it is that many
ranks, and one without either.

A run answers on a socket while it trains: see zerodctl(1). Results go to the standard output, everything else to the
standard error.""",
        "ENVIRONMENT": {
            "XDG_RUNTIME_DIR": "The control socket is made below its folder `zerod`; without it below `/tmp/zerod-UID`.",
            "SLURM_JOB_END_TIME": "When the job will be ended, in seconds since 1970: a deadline.",
            "NOTIFY_SOCKET": "Where systemd is told that the run is ready, how it goes and that it is alive.",
        },
        "FILES": {
            "OUTPUT_DIR/metrics.jsonl": "A row for every step.",
            "OUTPUT_DIR/events.jsonl": "What happened, commands too.",
            "OUTPUT_DIR/status.json": "The state of the run, rewritten every two seconds.",
            "OUTPUT_DIR/checkpoint-000500": "A checkpoint.",
            "OUTPUT_DIR/hf": "The exported model.",
            "OUTPUT_DIR/logs": "Lines of each rank.",
        },
        "SEE ALSO": "`zerodctl`(1), `job.toml`(5), `mpirun`(1)",
    },
    "zerodctl": {
        "DESCRIPTION": """\
Asks a running job of zerod(1) and steers it, over the unix socket on which its first rank answers. Where only one job runs
it needs no name. What changes a run takes effect on all ranks at one step boundary.""",
        "ENVIRONMENT": {
            "XDG_RUNTIME_DIR": "Sockets are looked for below its folder `zerod`; without it below `/tmp/zerod-UID`.",
            "NO_COLOR": "When it is set, nothing is colored.",
        },
        "FILES": {
            "$XDG_RUNTIME_DIR/zerod/JOB.sock": "The socket of a job: HTTP/1.1 with JSON.",
            "OUTPUT_DIR/status.json": "What `--dir` reads where the socket is out of reach.",
        },
        "SEE ALSO": "`zerod`(1), `job.toml`(5), `curl`(1)",
    },
}


# --- keys of job.toml ---


def accepts(key):
    text = key["accepts"]
    if key["type"] == "size":
        return "a size"
    if key["type"] == "limit":
        return 'a size, or a share like `"90%"`'
    if " | " in text or key["words"] and " " not in text:  # what is one word is typed, what is more describes
        return ", ".join(word if " " in word else f"`{word}`" for word in text.split(" | "))
    return re.sub('"auto"$', "`auto`", text) if key["auto"] else text


def number(value):
    """The fewest digits that come back exactly: 2e-5, 0.1, 3.0."""
    text = next(text for text in (f"{value:.{digits}g}" for digits in range(1, 18)) if float(text) == value)
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else text if "." in text else text + ".0"


def default(key):
    value = key["default"]
    if key["fallback"]:
        return key["fallback"]
    if value is None or key["type"] in ("entries", "table") or key["nullable"] and not value:
        return "none"
    if key["type"] == "duration" and re.match("[0-9]", value):
        seconds = int(re.match("[0-9]+", value).group())
        return f'`"{seconds // 60}m"`' if seconds and seconds % 60 == 0 else f'`"{value}"`'
    if key["type"] == "size" and isinstance(value, int):
        units = {"GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6}
        return next((f'`"{value // n}{unit}"`' for unit, n in units.items() if value and value % n == 0), str(value))
    if isinstance(value, (bool, str, list)):
        text = json.dumps(value)
        return text if isinstance(value, bool) else f"`{text}`"
    return number(value) if isinstance(value, float) or value >= 10**7 and value % 10**6 == 0 else str(value)


def words(names):
    return ", ".join(f"`{name}`" for name in names)


def help_of(key):
    text = key["help"]
    if key["words"] and key["type"] != "optimizer":  # those are too many
        text += ". Read too: " + words(key["words"])
    return text + (". Also: " + words(key["aliases"].split()) if key["aliases"] else "")


def sections(tables):
    """Each section with its keys."""
    for section, group in itertools.groupby(tables["keys"], lambda key: key["section"]):
        title = f"[[{section}]]" if section.startswith("data.") else f"[{section}]" if section else "Above all sections"
        yield title, list(group)


# --- pages of docs/ ---


def table(head, rows):
    return "\n".join([f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def neighbor(text):
    """A page below docs/ is the neighbor of this one; a bar would end the cell."""
    return re.sub(r"docs/([a-z_.]*[a-z_])", r"[\1](\1)", text).replace("|", "\\|")


def put_keys(tables):
    for title, keys in sections(tables):
        yield f"\n### {title}\n\n"
        if keys[0]["note"]:
            yield neighbor(keys[0]["note"]) + ".\n\n"
        cells = [[f"`{key['name']}`", *map(neighbor, (accepts(key), default(key), help_of(key)))] for key in keys]
        if title == "[[data.eval]]":  # the keys of [[data.train]], but where another help says what differs
            yield "The keys of [[data.train]]; these differ:\n\n"
            cells = [row for row in cells if row not in train]
        train = cells
        yield table("key | accepts | default |", cells)
    yield "\n"


def put_types(tables):
    yield f"`model_type` is one of {words(tables['types'])}.\n"


def put_rows(tables):
    """Rows without a help share the line of the one before."""
    groups = []
    for row in tables["step"]:
        groups.extend([[]] if row["help"] else [])
        groups[-1].append(row)
    for group in groups:
        names = words(row["name"] for row in group if row["name"])
        yield f"| {names} | {words(row['series'] for row in group if row['series'])} | {group[0]['help']} |\n"


def put_families(tables):
    for name in ("run", "step", "rank"):
        for family, group in itertools.groupby(tables[name], lambda row: row["family"]):
            row, *_ = group = list(group)
            if not family:
                continue
            labels = [f"`{label}`" for label in (name == "rank" and "rank", row["label"]) if label]
            labels += [f"`{index['label']}`: {', '.join(index['names'])}" for index in (row["index"], row["inner"]) if index]
            values = ", ".join(row["label_value"] for row in group if row["label_value"])
            told = "; ".join(labels) + (": " + values if values else "")
            yield f"| `{family}{'_total' if row['kind'] == 'counter' else ''}` | {row['kind']} | {told} | {row['help']} |\n"


def put_fits(tables):
    for fit in tables:
        yield f"\n## {fit['model']}\n\n" + table("device | whole | whole, 8 bits | LoRA | QLoRA", fit["rows"])
    yield "\n"


PARTS = {"keys": put_keys, "types": put_types, "rows": put_rows, "families": put_families, "fits": put_fits}


def page(read, path, *write):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found = set(re.findall("<!-- end of (.*) -->", text)) & set(PARTS)
    if not found:
        sys.exit(f"{path} has no marks `<!-- end of NAME -->`")
    for name in found:
        made = "".join(PARTS[name](read("fits" if name == "fits" else "")))
        text = re.sub(f"(<!-- {name}: [^\n]*\n).*?(?=<!-- end of {name} -->)", lambda mark: mark[1] + made, text, flags=re.S)
    if not write:
        return text
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return ""


# --- man pages: man(7), for man-db's groff and for mandoc ---


def plain(text):
    escapes = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "^": "\\(ha", "~": "\\(ti"}
    return ("\\&" if text.startswith(".") else "") + "".join(escapes.get(c, c) for c in text)


def bold(text):
    return re.sub("`([^`]*)`", r"\\fB\1\\fR", plain(text))


def paragraphs(text):
    return ".PP\n".join(bold(" ".join(part.split())) + "\n" for part in text.split("\n\n"))


def lines(text):
    return ".nf\n" + "".join(plain(line) + "\n" for line in text.splitlines()) + ".fi\n"


def item(label, *told):
    return f".TP\n{label}\n" + "".join(text + "\n" for text in told)


def head(tables, name, section):
    title = f'.TH {name.upper()} {section} {MAN_DATE} "zerod {tables["version"]}"'
    return f'.\\" Written by pages.py from the tables of zerod.\n{title}\n.SH NAME\n'


def options_of(program):
    for option in program["options"]:
        label = f"\\fB\\-{option['letter']}\\fR, " * bool(option["letter"]) + f"\\fB\\-\\-{plain(option['name'])}\\fR"
        label += f" \\fI{plain(option['value'])}\\fR" if option["value"] else ""
        of_all = ["Of every command; it may stand before the command."] * (option["common"] and option["name"] != "help")
        yield item(label, plain(option["help"]) + ".", *of_all)


def commands_of(program):
    common = {option["name"] for option in program["options"] if option["common"]} | {"help"}
    groups = itertools.groupby(program["commands"], lambda command: command["group"])
    has_groups = len({command["group"] for command in program["commands"]}) > 1
    for group, commands in groups:
        yield f".SS {plain(group)}\n" if has_groups else ""
        for command in commands:
            label = f"\\fB{plain(command['name'])}\\fR"
            label += f" \\fI{plain(command['operands'])}\\fR" if command["operands"] else ""
            own = ", ".join(f"\\fB\\-\\-{plain(name)}\\fR" for name in command["options"] if name not in common)
            details = [bold(command["details"])] if command["details"] else []
            yield item(label, plain(command["help"]) + ".", *details, *([f"Options: {own}."] if own else []))


def man_program(tables, name):
    program, notes = tables[name], NOTES[name]
    yield head(tables, name, 1) + f"{name} \\- {plain(program['summary'])}\n.SH SYNOPSIS\n"
    if program["unnamed"]:
        yield f".B {name}\n\\fB\\-\\-job\\fR \\fIFILE\\fR [\\fIoptions\\fR]\n.br\n"
    yield f".B {name}\n[\\fIoptions\\fR] \\fIcommand\\fR [\\fIoptions\\fR] [\\fIoperands\\fR]\n"
    yield f".br\n.B {name}\n\\fB\\-\\-version\\fR\n.SH DESCRIPTION\n"
    yield paragraphs(notes["DESCRIPTION"]) + ".PP\n" + lines(program["examples"]) + ".SH COMMANDS\n"
    yield from commands_of(program)
    yield ".SH OPTIONS\n"
    yield from options_of(program)
    yield ".SH EXIT STATUS\n"
    yield from (item(f".B {code}", bold(meaning)) for code, meaning in program["exits"].items())
    for title in ("ENVIRONMENT", "FILES"):
        yield f".SH {title}\n"
        yield from (item(f"\\fI{plain(label)}\\fR", bold(what)) for label, what in notes[title].items())
    yield f".SH SEE ALSO\n{bold(notes['SEE ALSO'])}\n"


def man_job(tables):
    yield head(tables, "job.toml", 5) + "job.toml \\- a training job of zerod\n.SH DESCRIPTION\n"
    yield paragraphs(RULES) + ".SH KEYS\n"
    for title, keys in sections(tables):
        yield f".SS {plain(title)}\n" + (f"{bold(keys[0]['note'])}.\n" if keys[0]["note"] else "")
        for key in keys:
            told = (help_of(key), "Accepts: " + accepts(key), "Default: " + default(key))
            yield item(f".B {plain(key['name'])}", "\n.br\n".join(bold(text) + "." for text in told))
    yield f".SH EXAMPLES\n{lines(EXAMPLE)}.SH SEE ALSO\n.BR zerod (1),\n.BR zerodctl (1)\n"


def man(read, name):
    return "".join(man_job(read("")) if name == "job.toml" else man_program(read(""), name))


def main():
    tables, what, *rest = sys.argv[1:]

    def read(of):
        said = subprocess.run([tables, *([of] if of else [])], check=True, stdout=subprocess.PIPE)
        return json.loads(said.stdout)

    sys.stdout.write({"page": page, "man": man}[what](read, *rest))


main()
