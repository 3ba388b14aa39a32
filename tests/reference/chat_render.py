"""What transformers' own template environment makes of a template and a context."""

import datetime
import json

import jinja2
import xxhash
from transformers.utils import chat_template_utils as utils


class Day(datetime.datetime):
    """now() is midnight of the day that a context names."""

    day = "2026-01-01"

    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.strptime(cls.day, "%Y-%m-%d")


utils.datetime = Day


def render(template, context):
    """("done", text, spans in bytes), ("raised", what) or ("failed", why)."""
    context = dict(context)
    Day.day = context.pop("strftime_now", Day.day)
    given = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False}
    given.update(context)
    try:
        compiled = utils._compile_jinja_template(template)
        text, spans = utils._render_with_assistant_indices(compiled_template=compiled, **given)
        raw = text.encode()
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return ("raised", str(error))
        return ("failed", "%s: %s" % (type(error).__name__, error))
    except Exception as error:  # whatever Python refuses
        return ("failed", "%s: %s" % (type(error).__name__, error))
    count = [len(text[:a].encode()) for span in spans for a in span]
    return ("done", text, [[min(a, len(raw)), min(b, len(raw))] for a, b in zip(count[::2], count[1::2])])


def digest(result):
    """Of a text with its spans, or of what was raised; "failed"."""
    if result[0] == "failed":
        return "failed"
    if result[0] == "raised":
        return "raised " + xxhash.xxh64(result[1].encode()).hexdigest()
    spans = "".join(" %d-%d" % tuple(s) for s in result[2])
    return xxhash.xxh64(result[1].encode() + spans.encode()).hexdigest()


def dump(value):
    return json.dumps(value, ensure_ascii=False)
