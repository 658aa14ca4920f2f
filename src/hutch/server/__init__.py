"""The engine over HTTP: thin. Framing, who may do what, and an error map; what is done is the engine's."""
