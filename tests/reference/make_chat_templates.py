#!/usr/bin/env python3
"""What transformers makes of chat templates, and of Jinja's constructs one by one.

    python tests/reference/make_chat_templates.py      writes two files of tests/fixtures

chat_templates.json   {"library", "conversations": {NAME: [messages]}, "contexts": [what templates are given],
                       "templates": [{"name", "template", "results": {NAME: result}, "digests": [one a context]}]}:
                      of tests/data/jinja/templates.txt
jinja_cases.json      {"library", "context", "cases": [{"name", "template", result}]}: of tests/data/jinja/cases.txt
a result              "text" and "spans" (of {% generation %}, in bytes), or "raised", or "failed": Python's words

The templates are written for this purpose, in the manner of those that models come with; chat_compare.py holds
the ones of other packages against ours."""

import json
import os

import chat_corpus
import chat_render
import jinja2
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "fixtures")
LIBRARY = "transformers %s, jinja2 %s" % (transformers.__version__, jinja2.__version__)

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": " What is 2 + 2? "}
ASSISTANT = {"role": "assistant", "content": "Four.\n"}
TOOL = {"role": "tool", "content": "4 \"of\" <them> \u00e9"}
CONVERSATIONS = {
    "plain": [SYSTEM, USER, ASSISTANT],
    "no system": [USER, ASSISTANT, USER, ASSISTANT],
    "tool": [SYSTEM, USER, ASSISTANT, TOOL, TOOL, ASSISTANT],
}

CASE_CONTEXT = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hé?"}, {"role": "assistant", "content": "Yes."},
                 {"role": "user", "content": ""}],
    "tools": [chat_corpus.tool(chat_corpus.random.Random(3), "search")],
    "data": {"big": 2**62, "small": 0.1, "text": "a\u0001b", "list": [None, True, -0.0, 1e22]},
    "strftime_now": "2026-02-03",
}


def written(result):
    if result[0] == "done":
        return {"text": result[1], "spans": result[2]}
    return {result[0]: result[1]}


def write(name, head, key, rows):
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as f:
        f.write(json.dumps({"library": LIBRARY, **head})[:-1] + ', "%s": [\n' % key
                + ",\n".join(json.dumps(r) for r in rows) + "\n]}\n")


def blocks(name):
    """[name, template] of each "--- NAME" of a file."""
    with open(os.path.join(HERE, "..", "data", "jinja", name), encoding="utf-8", newline="") as f:
        return [block.split("\n", 1) for block in ("\n" + f.read()).split("\n--- ")[1:]]


def main():
    contexts, rows = chat_corpus.corpus(40), []
    for name, template in blocks("templates.txt"):
        results = {which: written(chat_render.render(template, {
            "messages": messages, "bos_token": "<s>", "eos_token": "</s>", "strftime_now": "2026-01-01"}))
            for which, messages in CONVERSATIONS.items()}
        digests = [chat_render.digest(chat_render.render(template, c)) for c in contexts]
        rows.append({"name": name, "template": template, "results": results, "digests": digests})
    write("chat_templates.json", {"conversations": CONVERSATIONS, "contexts": contexts}, "templates", rows)
    write("jinja_cases.json", {"context": CASE_CONTEXT}, "cases",
          [{"name": name, "template": template, **written(chat_render.render(template, CASE_CONTEXT))} for name, template in blocks("cases.txt")])


if __name__ == "__main__":
    main()
