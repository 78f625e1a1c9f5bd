"""The script API over HTTP, for programs in any language on the agent's machine."""
