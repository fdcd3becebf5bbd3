"""An LLM server whose answers do not depend on who else is being served."""

__version__ = "0.1.0"
