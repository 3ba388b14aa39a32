#!/usr/bin/env python3
"""What transformers makes of chat templates, and of Jinja's constructs one by one.

    python tests/reference/make_chat_templates.py      writes two files of tests/fixtures

chat_templates.json   {"library", "conversations": {NAME: [messages]}, "contexts": [what templates are given],
                       "templates": [{"name", "template", "results": {NAME: result}, "digests": [one a context]}]}
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

TEMPLATES = {
    "chatml": "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}"
              "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "a system of its own": """{%- if messages[0].role == "system" %}
    {{- "<sys>" ~ messages[0].content ~ "</sys>\\n" }}
    {%- set rest = messages[1:] %}
{%- else %}
    {{- "<sys>Help.</sys>\\n" }}
    {%- set rest = messages %}
{%- endif %}
{#- the turns -#}
{%- for turn in rest %}
    {%- if turn.role in ["user", "assistant"] and not turn.tool_calls %}
        {{- "<" + turn.role + ">" + turn.content|trim + "</" + turn.role + ">\\n" }}
    {%- elif turn.role == "tool" %}
        {%- if loop.first or rest[loop.index0 - 1].role != "tool" %}
            {{- "<answers>" }}
        {%- endif %}
        {{- "\\n<one>" + turn.content + "</one>" }}
        {%- if loop.last or rest[loop.index0 + 1].role != "tool" %}
            {{- "</answers>\\n" }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
""",
    "date and json": """{{- bos_token }}
{%- if not day is defined %}
    {%- if strftime_now is defined %}
        {%- set day = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set day = "never" %}
    {%- endif %}
{%- endif %}
{%- if tools is not none %}{{- tools | tojson }}{%- endif %}
{{- "Today: " + day + "\\n" }}
{%- for m in messages %}
    {%- if m.content is string and "tool_calls" not in m %}
        {{- m.role|upper ~ ": " ~ (m.content | tojson if m.role == "tool" else m.content.strip()) ~ eos_token }}
    {%- endif %}
{%- endfor %}
""",
    "turns that alternate": "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
                            "{{ raise_exception('turns must alternate') }}{% endif %}"
                            "{{ '[' + m['content'] + ']' }}{% endfor %}",
    "from behind": """{%- set ns = namespace(seeks=true, last=messages|length - 1) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.seeks and m.role == "user" and not(m.content.startswith("<t>") and m.content.endswith("</t>")) %}
        {%- set ns.seeks = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set words = m.content.split("2")[-1].rstrip("\\n").replace("?", "!") %}
    {{- loop.index ~ ("*" if loop.index0 > ns.last else "") ~ words ~ "\\n" }}
{%- endfor %}
""",
    "lines of blocks": "{% for m in messages %}\n{% if m['role'] == 'user' %}\n<u>{{ m['content'] }}</u>\n"
                       "  {% elif m['role'] == 'system' %}\n<s>{{ m['content'] }}</s>\n{% else %}\nother\n{% endif %}\n{% endfor %}\nend\n",
    "tools, calls and thoughts": """{%- macro args(value, depth=0) %}
    {%- if value is mapping %}
        {%- for k, v in value|dictsort %}{{ "\\n" if not loop.first }}{{ "  " * depth }}{{ k }}={{ args(v, depth + 1) }}{% endfor %}
    {%- elif value is iterable and value is not string %}
        {%- for v in value %}<{{ args(v, depth) }}>{% endfor %}
    {%- else %}
        {{- value if value is string else value|tojson }}
    {%- endif %}
{%- endmacro %}
{%- set ns = namespace(last=-1, names=[], seen=false) %}
{%- for m in messages if m.role == "user" and m.content is string %}{% set ns.seen = true %}{% endfor %}
{%- for m in messages[::-1] %}
    {%- if m.role == "user" %}{% set ns.last = messages|length - 1 - loop.index0 %}{% break %}{% endif %}
{%- endfor %}
{%- if tools %}
    {{- "<tools>" }}
    {%- for tool in tools %}
        {%- set f = tool.function or tool %}
        {%- set ns.names = ns.names + [f.name] %}
        {{- "\\n" ~ f|tojson(indent=2) }}
        {%- for name, spec in f.get("parameters", {}).get("properties", {}).items() %}
            {{- "\\n" ~ loop.index ~ ". " ~ name|upper ~ ": " ~ (spec.type if spec.type is string else spec.type|join("|")) }}
            {{- " (" ~ spec.description|trim|replace("\\n", " ") ~ ")" if spec.description }}
            {%- if name in f.parameters.required|default([]) %} required{% endif %}
        {%- endfor %}
    {%- endfor %}
    {{- "</tools>" ~ ns.names|join(", ") ~ "\\n" }}
{%- endif %}
{%- for m in messages %}
    {%- if m.content is string %}
        {%- set content = m.content %}
    {%- elif m.content is iterable %}
        {%- set content = m.content|selectattr("type", "equalto", "text")|map(attribute="text")|join if m.content is not mapping else "{}" %}
    {%- else %}
        {%- set content = "" %}
    {%- endif %}
    {{- "<|" ~ m.role|capitalize ~ "|>" }}
    {%- if m.role == "assistant" %}
        {%- generation %}
        {%- set thought = m.reasoning_content|default("", true) %}
        {%- if not thought and "</think>" in content %}
            {%- set thought = content.split("</think>")[0].rstrip("\\n").split("<think>")[-1].lstrip("\\n") %}
            {%- set content = content.split("</think>", 1)[-1].lstrip() %}
        {%- endif %}
        {%- if loop.index0 > ns.last and thought and enable_thinking is not false %}{{ "<think>" ~ thought.strip() ~ "</think>" }}{% endif %}
        {{- content }}
        {%- for call in m.tool_calls or [] %}
            {%- set call = call.function if call.function is defined else call %}
            {%- if call.arguments is string %}{{ "\\n" ~ call.name ~ "!" ~ call.arguments }}{% continue %}{% endif %}
            {%- set body %}{{ args(call.arguments) }}{% endset %}
            {{- "\\n" ~ call.name ~ "(" ~ body ~ ")" ~ (call.arguments|tojson) }}
        {%- endfor %}
        {{- "<end>" }}
        {%- endgeneration %}
    {%- elif m.role == "tool" and (loop.previtem is undefined or loop.previtem.role != "tool") %}
        {{- "{" ~ content ~ (m.tool_call_id|string if m.tool_call_id) }}
    {%- else %}
        {{- content|trim ~ "<end>" }}
    {%- endif %}
    {{- "\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|Assistant|>" ~ ("<think></think>" if enable_thinking is defined and not enable_thinking) }}{% endif %}
""",
    "bits": """a
  {% if 1 < 2 and not none %}
 b {{ 'x' if false else "y" }}{{ 5 - 2 * 3 }} {{ -1 }}
  {% endif %}
{% for k, v in {'p': 1, 'q': [1, 'z']}.items() %}{{ k }}={{ v|string|length }};{% endfor %}
{%- for i in range(3) -%}  {{ i }}{{ loop.length }}  {%- endfor %}
{{ messages[1:][0].role ~ 3 ~ true }} {{ 'abc'[1:] }} {{ 'a,b'.split(',')[-1] }}{# gone #}
{{ absent }}{{ absent is defined }}{{ 'a' in 'abc' }}{{ 'z' not in ['z'] }}{{ 3 >= 3 }}{{ 2 <= 1 }}
{{ ('x' + 'y')|upper }}{{ messages|last is mapping }}{{ [1,2][-1] }}{{ {'a': 1}['a'] }}{{ absent|default('r') }}
{% set a = [] + [1] %}{{ a|length }}{% if a and a[0] == 1 or absent.foo %}yes{% elif false %}no{% else %}never{% endif %} {{ "it's \\"q\\"" }}
""",
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


def main():
    contexts, rows = chat_corpus.corpus(40), []
    for name, template in TEMPLATES.items():
        results = {which: written(chat_render.render(template, {
            "messages": messages, "bos_token": "<s>", "eos_token": "</s>", "strftime_now": "2026-01-01"}))
            for which, messages in CONVERSATIONS.items()}
        digests = [chat_render.digest(chat_render.render(template, c)) for c in contexts]
        rows.append({"name": name, "template": template, "results": results, "digests": digests})
    write("chat_templates.json", {"conversations": CONVERSATIONS, "contexts": contexts}, "templates", rows)
    with open(os.path.join(HERE, "..", "data", "jinja", "cases.txt"), encoding="utf-8", newline="") as f:
        cases = [block.split("\n", 1) for block in ("\n" + f.read()).split("\n--- ")[1:]]
    write("jinja_cases.json", {"context": CASE_CONTEXT}, "cases",
          [{"name": name, "template": template, **written(chat_render.render(template, CASE_CONTEXT))} for name, template in cases])


if __name__ == "__main__":
    main()
