#!/usr/bin/env python3
"""What Jinja makes of chat templates, as transformers sets it up.

    python tests/reference/make_chat_templates.py      writes tests/fixtures/chat_templates.json

    {"library": "jinja2 3.1.6", "conversations": {NAME: [messages]},
     "templates": [{"name", "template", "results": {NAME: {"text"} or {"raised"}}}]}

The templates are written for this purpose, in the manner of those that models come with."""

import json
import os

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "fixtures")

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


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: "01 Jan 2026"
    return env


def main():
    rows = []
    for name, template in TEMPLATES.items():
        results = {}
        for which, messages in CONVERSATIONS.items():
            try:
                results[which] = {"text": environment().from_string(template).render(
                    messages=messages, bos_token="<s>", eos_token="</s>", tools=None, add_generation_prompt=False)}
            except jinja2.exceptions.TemplateError as error:
                results[which] = {"raised": str(error)}
        rows.append({"name": name, "template": template, "results": results})
    with open(os.path.join(OUT, "chat_templates.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps({"library": "jinja2 " + jinja2.__version__, "conversations": CONVERSATIONS})[:-1]
                + ', "templates": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]}\n")


if __name__ == "__main__":
    main()
