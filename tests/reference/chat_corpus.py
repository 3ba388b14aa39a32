"""Conversations for chat templates, made from a seed: what is odd in each is drawn by chance."""

import random

WORDS = ("the a model trains on data with loss of gradient step and token layer head weight batch shard rank "
         "café naïve Größe 日本語 текст emoji😀 👩‍👩‍👧 ½ don't \"quoted\" it's <b>bold</b> & {x} [y] {{z}} {%if%} \\n back\\slash "
         "https://example.org/a?b=c%20d 3.14 -7 0x1F").split()
ODD = ["", " ", "\n", "\n\n", "  leading", "trailing  ", "\ttabs\t", "\u00a0nbsp\u00a0", "line\r\nend\r\n", "\u2028sep", "'", '"', "'\"",
       "<think>inner</think>after", "<think>\nonly open", "a</think>b</think>c", "<|im_end|>", "<tool_response>x</tool_response>",
       "<start_of_turn>", "\x7f\x01", "\U0001f600", "e\u0301", "None", "null", "{}", "[]", "0"]


def text(r, most=40):
    if r.random() < 0.15:
        return r.choice(ODD)
    s = " ".join(r.choice(WORDS) for _ in range(r.randint(1, most)))
    if r.random() < 0.3:
        s = s.replace(" ", "\n", r.randint(1, 3))
    if r.random() < 0.15:
        s = r.choice(["\n", " ", "\n\n", "\t"]) + s
    if r.random() < 0.15:
        s += r.choice(["\n", " ", "\n\n", " \n"])
    return s


def value(r, depth=0):
    kind = r.randrange(10 if depth < 3 else 7)
    if kind < 2:
        return text(r, 4)
    if kind == 2:
        return r.choice([0, 1, -1, 42, 2**53, -(2**63), 2**63 - 1, 1000000])
    if kind == 3:
        return r.choice([0.0, -0.0, 1.0, 0.1, 1e16, 1.5e300, 1e-5, 123456.789, -2.5, 1e15, 5e-324, 0.0001])
    if kind == 4:
        return r.random() < 0.5
    if kind == 5:
        return None
    if kind == 6:
        return r.choice(["", "x", "it's", 'say "hi"', "é"])
    if kind == 7:
        return [value(r, depth + 1) for _ in range(r.randrange(4))]
    return {key(r): value(r, depth + 1) for _ in range(r.randrange(4))}


def key(r):
    return r.choice(["city", "unit", "n", "items", "Größe", "a b", "path", "Type", "get", "zeta", "Alpha", "x_1", "values"])


def schema(r, depth=0):
    kind = r.choice(["string", "integer", "number", "boolean", "array", "object"] if depth < 3 else ["string", "integer"])
    out = {"type": kind}
    if r.random() < 0.6:
        out["description"] = text(r, 8)
    if kind == "string" and r.random() < 0.3:
        out["enum"] = r.sample(["celsius", "fahrenheit", "K", "é'\"", "a|b"], r.randint(1, 3))
    if kind == "array" and r.random() < 0.9:
        out["items"] = schema(r, depth + 1)
    if kind == "object" and r.random() < 0.9:
        names = r.sample(["city", "unit", "n", "items", "path", "zeta", "Alpha"], r.randint(0, 3))
        out["properties"] = {n: schema(r, depth + 1) for n in names}
        if names and r.random() < 0.5:
            out["required"] = names[:1]
        if r.random() < 0.2:
            out["additionalProperties"] = r.random() < 0.5
    if r.random() < 0.1:
        out["default"] = value(r, 2)
    if r.random() < 0.1:
        out["nullable"] = True
    if r.random() < 0.05:
        out["type"] = [kind, "null"]
    return out


def tool(r, name):
    function = {"name": name, "description": text(r, 10)}
    if r.random() < 0.95:
        names = r.sample(["city", "unit", "n", "items", "path", "zeta", "Alpha"], r.randint(0, 4))
        function["parameters"] = {"type": "object", "properties": {n: schema(r) for n in names}}
        if r.random() < 0.7:
            function["parameters"]["required"] = names[: r.randint(0, len(names))]
    if r.random() < 0.15:
        function["return"] = schema(r)
    return {"type": "function", "function": function}


def call(r, name, number):
    arguments = {key(r): value(r) for _ in range(r.randrange(4))}
    out = {"type": "function", "function": {"name": name, "arguments": arguments}}
    if r.random() < 0.7:
        out["id"] = r.choice(["call_%d" % number, "%09d" % number])
    if r.random() < 0.05:
        out["function"]["arguments"] = r.choice(["{}", '{"a": 1}', "not json"])
    return out


def content(r, most=40):
    if r.random() < 0.08:
        return [{"type": "text", "text": text(r, 8)} for _ in range(r.randint(1, 2))]
    return text(r, most)


def assistant(r, tools, last):
    message = {"role": "assistant", "content": content(r)}
    if r.random() < 0.3:
        message["reasoning_content"] = message["thinking"] = text(r)
    elif r.random() < 0.15:
        message["content"] = "<think>\n" + text(r) + "\n</think>\n\n" + text(r)
    if tools and not last and r.random() < 0.6:
        message["tool_calls"] = [call(r, t["function"]["name"], i)
                                 for i, t in enumerate(r.choices(tools, k=r.randint(1, 2 if r.random() < 0.5 else 1)))]
        if r.random() < 0.4:
            message["content"] = ""
        elif r.random() < 0.3:
            del message["content"]
    return message


def conversation(r):
    tools = [tool(r, n) for n in r.sample(["get_weather", "search", "add", "run_code"], r.randint(1, 3))] if r.random() < 0.4 else None
    messages = []
    if r.random() < 0.5:
        messages.append({"role": r.choice(["system"] * 9 + ["developer"]), "content": content(r)})
    turns = r.randint(1, 4)
    for turn in range(turns):
        if r.random() < 0.97:
            messages.append({"role": "user", "content": content(r)})
        if turn + 1 == turns and r.random() < 0.3:
            break
        message = assistant(r, tools, False)
        messages.append(message)
        if "tool_calls" in message:
            for c in message["tool_calls"]:
                result = {"role": "tool", "name": c["function"]["name"],
                          "content": content(r) if r.random() < 0.8 else value(r, 1) or ""}
                if "id" in c:
                    result["tool_call_id"] = c["id"]
                messages.append(result)
            if r.random() < 0.9:
                messages.append(assistant(r, tools, True))
    if r.random() < 0.03:
        r.shuffle(messages)
    context = {"messages": messages, "tools": tools, "add_generation_prompt": r.random() < 0.4,
               "bos_token": r.choice(["<s>", "<|begin_of_text|>"]), "eos_token": r.choice(["</s>", "<|im_end|>"]),
               "strftime_now": "2026-0%d-2%d" % (r.randint(1, 9), r.randint(0, 8))}
    if r.random() < 0.5:
        context["enable_thinking"] = r.random() < 0.5
    if r.random() < 0.1:
        context["reasoning_effort"] = r.choice(["low", "high"])
    if r.random() < 0.1:
        context["preserve_thinking"] = r.random() < 0.5
    if r.random() < 0.05:
        context["documents"] = [{"title": text(r, 3), "text": text(r, 9)}]
    return context


def corpus(count, seed=34):
    r = random.Random(seed)
    return [conversation(r) for _ in range(count)]
