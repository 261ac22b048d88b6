"""What the codes of notices mean. A notice is an event of a run that is no error: it tells what is going on."""

NOTICES = {
    "budget": "A budget ends the run, or had no room for more: it is spent, or others hold the rest of it.",
    "content_left_out": "The model was asked without what it cannot take of the conversation, such as a picture.",
    "continuing": "The response goes on: another call of a model takes over from a place that the event names.",
    "cursor_reset": "The reader asked for events after one that the run does not have. It gets all of them.",
    "fallback": "The model could not answer, so that its fallback does. The notice names it.",
    "fetching_weights": "The weights of the embedded model are being downloaded.",
    "loading_model": "The embedded model is being loaded into memory.",
    "max_steps": "The agent has made as many steps as its settings allow. Continue the run for more.",
    "model_busy": "The embedded model answers others first.",
    "new_turn": "The model was asked to go on in a turn of its own.",
    "prompt_blocked": "The filter of the provider has refused the prompt.",
    "prompt_progress": "The model is still reading the prompt. The notice says how far it is.",
    "resumed": "The run goes on after a restart of the server.",
    "retry": "The upstream failed before its first word, and is asked again.",
    "starting_tools": "The agent waits for its MCP servers to start.",
    "waiting": "The provider answers only some runs at a time, and the run waits for its turn.",
}
