"""Chat templates that write tools, their results, and calls in each of the forms that are read."""

import json

SCHEMA = json.dumps({"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}})
HEAD = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
TURN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
END = "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
OBJECT = '{"name": "{{ c.function.name }}", "%s": {{ c.function.arguments | tojson }}}'


def with_calls(each: str, before: str = "", after: str = "") -> str:
    """A template that writes `each` for every call `c` of a message `m`."""
    calls = (
        "{% if m.tool_calls %}" + before + "{% for c in m.tool_calls %}" + each + "{% endfor %}" + after + "{% endif %}"
    )
    return f"{HEAD}{TURN}{calls}{END}"


TAGGED = with_calls(f"<tool_call>\n{OBJECT % 'arguments'}\n</tool_call>")
BARE = with_calls(OBJECT % "parameters")
LISTED = with_calls(OBJECT % "arguments", "[TOOL_CALLS][", "]")
ELEMENTS = with_calls(
    "<tool_call>\n<function={{ c.function.name }}>\n{% for name, value in c.function.arguments | items %}"
    "<parameter={{ name }}>\n{{ value | tojson if value is mapping or (value is sequence and value is not string) "
    "else value | string }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
)
NAMED = with_calls("[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}")
WITHOUT_THOUGHTS = TAGGED.replace(
    "{{ m.content }}", "{{ m.content if loop.last or m.role != 'assistant' else m.content.split('</think>')[-1] }}"
)
