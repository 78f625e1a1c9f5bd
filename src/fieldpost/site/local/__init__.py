"""THE SCRIPT API FOR OTHER LANGUAGES: the agent serves it to programs on its own machine, over HTTP."""
