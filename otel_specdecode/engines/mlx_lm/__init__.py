"""MLX-LM: what its generate calls are asked for, which passes they make, how they end."""
