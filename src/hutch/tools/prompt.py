"""What a model is told about its sandbox: made from the policy and the limits that hold, so that it never says more."""

from __future__ import annotations

from hutch.client.sync_client import SandboxClient
from hutch.model.errors import InvalidRequest
from hutch.model.limits import MIB
from hutch.model.template import TemplateInfo
from hutch.tools.answers import MODEL_BYTES
from hutch.tools.holder import get_sandbox_client

_TEXT = """\
### Bash in a sandbox

`execute_bash_command(command, file_paths=None, working_dir="/workspace")` runs a bash command in a sandbox that
belongs to this conversation. Its files stay from one command to the next and go when the conversation ends.

Use it for exact arithmetic, for filtering and joining large data, for pipelines and for Python; do not calculate in
your head.

**How to work**
1. Save data in the virtual filesystem: `write_file("/data-exports/data.json", ...)`.
2. Run the command and name the files it needs in `file_paths`: each is brought to `/workspace/<name>` first. When two
   have the same name, `uploaded_files` in the result says where each went.
3. Read `stdout`. Never paste file content into a command, and use no heredocs for data.

```python
write_file("/data-exports/receipts.json", json.dumps(receipts))
result = execute_bash_command(
    command="jq '.[] | .amount' /workspace/receipts.json | awk '{{sum += $1}} END {{print sum}}'",
    file_paths=["/data-exports/receipts.json"],
)
```

**Large results**: write them to a file in the sandbox, then
`download_sandbox_file("results.csv", "/data-exports/results.csv")`. At most {shown} KB of output are shown; the note
in a longer one names the file that has all of it.

**What runs**: {programs}

**Limits**: {timeout} s a command, {memory} of memory, {file_size}{workspace} and {files:,} files in the workspace.

**Results**: `exit_code` 0 is success. 124 with `timed_out` means that the time was up; `limit` names a limit that was
hit. `status` "error" with `error` says why nothing ran: read it before you try again. `session_status` "created" means
that the sandbox is new and empty, as after a long pause: name the files again.
"""


def system_prompt(template: str = "bash", *, client: SandboxClient | None = None) -> str:
    """A part of a system prompt for an agent with the bash tool.

    Args:
        template: the kind of sandbox that the agent has.
        client: whose sandboxes; default is the process's own client.

    Raises: InvalidRequest, SettingsInvalid, ServerUnreachable.
    """
    templates = {found["name"]: found for found in (client or get_sandbox_client()).templates()}
    if template not in templates:
        raise InvalidRequest(f"There is no template {template!r}; there are {', '.join(sorted(templates))}.")
    return prompt_text(templates[template])


def prompt_text(template: TemplateInfo) -> str:
    programs = template["programs"]
    if programs:
        runs = (
            f"only {', '.join(programs)}, and bash's own syntax and simple built-ins. Nothing else can be started or "
            "installed, and files cannot be removed by a command. There is no network."
        )
    else:
        runs = "any program that is installed. There is no network, unless hosts were allowed."
    return _TEXT.format(
        shown=MODEL_BYTES // 1000,
        programs=runs,
        timeout=f"{template['timeout']:g}",
        memory=_size(template["memory_bytes"]),
        file_size=f"{_size(template['file_bytes'])} a file, " if template["file_bytes"] else "",
        workspace=_size(template["workspace_bytes"]),
        files=template["workspace_files"],
    )


def _size(count: int) -> str:
    return f"{count // MIB} MB" if count < 1024 * MIB else f"{count / (1024 * MIB):g} GB"
