"""llama.cpp through llama-cpp-python: what its calls are asked for, which passes they make, how they end."""
