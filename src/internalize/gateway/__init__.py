"""An LLM API in front of an engine, for agent CLIs: exact tokens in, exact tokens out, one record row a call."""
