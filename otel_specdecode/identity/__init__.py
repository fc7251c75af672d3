"""Who the models are: names the caller knows, never a path on this machine."""
