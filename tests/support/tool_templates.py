"""Chat templates in the manner of well-known families, each with its own wishes about tools; written for tests."""

HERMES = """\
{%- if tools %}<|im_start|>system
{{ messages[0].content if messages[0].role == 'system' }} Tools:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif -%}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|im_start|>user
<tool_response>{{ m.content }}</tool_response><|im_end|>
{% elif m.role != 'system' or not tools %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for call in m.tool_calls or [] %}{{ '\n' if m.content or not loop.first }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {% if call.function.arguments is string %}\
{{ call.function.arguments }}{% else %}{{ call.function.arguments | tojson }}{% endif %}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif -%}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif -%}
"""
"""JSON in tags; takes arguments either way; a switch for reasoning."""

TAGGED = """\
{%- for tool in tools or [] %}<tool>{{ tool.function.name }}: {{ tool.function.description }}</tool>
{% endfor -%}
{%- for m in messages %}[{{ m.role }}]{{ m.content or '' }}
{%- if m.tool_calls %}<calls:x>
{%- for call in m.tool_calls %}
<call:x name="{{ call.function.name }}">
{%- for key, value in call.function.arguments | items %}
<value:x key="{{ key }}">{{ value if value is string else value | tojson }}</value:x>
{%- endfor %}
</call:x>
{%- endfor %}
</calls:x>
{%- endif %}[/{{ m.role }}]
{% endfor -%}
{%- if add_generation_prompt %}[assistant]{% endif -%}
"""
"""A family that no spec knows, with values between tags; arguments only as an object."""

STRICT = """\
{%- if tools %}[AVAILABLE]{{ tools | tojson }}[/AVAILABLE]{% endif -%}
{%- for m in messages %}
{%- if m.role == 'assistant' and m.tool_calls %}[TOOL_CALLS] [
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('Tool call IDs should have nine letters') }}{% endif -%}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}, "id": "{{ call.id }}"}
{%- if not loop.last %}, {% endif %}
{%- endfor %}]</s>
{%- elif m.role == 'tool' %}[RESULT]{{ m.tool_call_id }}:{{ m.content }}[/RESULT]
{%- elif m.role == 'user' %}
{%- if loop.index0 and messages[loop.index0 - 1].role == 'tool' %}
{{- raise_exception('After a result comes an answer') }}{% endif -%}
[INST]{{ m.content }}[/INST]
{%- else %}{{ m.content }}</s>{% endif %}
{%- endfor -%}
"""
"""Ids of nine letters, no user behind a result."""

ONE_CALL = """\
{%- for tool in tools or [] %}{{ tool.function | tojson }}
{% endfor -%}
{%- for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at once') }}{% endif -%}
{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}
{%- else %}{{ m.content }}{% endif %}<|eot_id|>
{%- endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif -%}
{#- tools_in_user_message -#}
"""
"""Bare JSON, one call in a turn."""

IDS_WITH_NAMES = """\
{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor -%}
{%- for m in messages %}<|im_{{ m.role }}|>
{%- if m.tool_calls %}<|tool_calls_section_begin|>{% for call in m.tool_calls -%}
<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>{{ call.function.arguments }}<|tool_call_end|>
{%- endfor %}<|tool_calls_section_end|>
{%- elif m.role == 'tool' %}## Return of {{ m.tool_call_id }}: {{ m.content }}
{%- else %}{{ m.content }}{% endif %}<|im_end|>
{%- endfor %}
{%- if add_generation_prompt %}<|im_assistant|>{% endif -%}
"""
"""The id of a call is where its name is written; arguments as text."""

KNOWS_NONE = """\
{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif -%}
<start>{{ m.role }}
{{ m.content }}<end>
{% endfor -%}
{%- if add_generation_prompt %}<start>assistant
{% endif -%}
"""
"""No tools, no system turn, strictly in turns."""
