"""An agent whose first command hangs until its server is killed, and that goes on after it by itself."""

from tests.support.native import Native

AGENT = """
[[agents]]
name = "lasting"
model = "scripted/steps"
tools = ["shell"]
folder = "{folder}"
approvals = {{ shell = "allow" }}
on_restart = "continue"
"""
COMMAND = "echo ran >> ran; if [ ! -e once ]; then touch once; echo half; sleep 600; fi"
"""It has its effect, and then hangs; not so the second time."""
ASKED = f'shell {{"command": "{COMMAND}"}}\nDone.'


async def hangs(api: Native, run_id: str) -> None:
    """Wait until the command has had its effect, and hangs, and what it has printed is saved."""
    reader = await api.events(run_id)
    while (frame := await reader.next_event()) is not None and "half" not in frame.json().get("output", ""):
        pass
    reader.close()
